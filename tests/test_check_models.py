"""Whole models: the first place that differs, the catalogue applied there, and what needs no weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plainformer.check import Answer
from plainformer.check.checking import check_within
from plainformer.check.process import Theirs
from planted import FILES

NOBODY = FILES["np"].parent / "as_nobody.py"
BLOCKS = "for block in self.transformer.h:\n            x = block(x)"
APART = "for i, block in enumerate(self.transformer.h):\n            x = "


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    with Theirs(FILES["nano"], seconds=30) as one:
        yield one


def answer_to(theirs: Theirs, file: Path, folder: Path, old: str = "", new: str = "") -> Answer:
    text = file.read_text(encoding="utf-8")
    assert old in text
    path = folder / "model.py"
    path.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    (answer,) = check_within(theirs, path, ["gpt"]).answers
    return answer


# --- walked ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "block", "key"),
    [
        ("block(x) if i == 0 else (lambda y: y + block.mlp(block.ln_2(y)))(block.attn(block.ln_1(x)))", 1, "residual"),
        ("block(x) if i == 1 else (lambda y: y + block.mlp(y))(x + block.attn(block.ln_1(x)))", 0, "norm"),
    ],
)
def test_a_mistake_in_one_block_alone_is_named_there(
    theirs: Theirs, tmp_path: Path, wrong: str, block: int, key: str
) -> None:
    answer = answer_to(theirs, FILES["nano"], tmp_path, BLOCKS, APART + wrong)
    assert answer.verdict == "wrong"
    assert answer.confident
    assert answer.said.startswith(f"in block {block} alone: ")
    assert key in answer.mistakes[0].key


@pytest.mark.proof
@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("x = self.transformer.ln_f(x)", "x = self.transformer.ln_f(x) * 1.1 + 0.3 * x", "the head"),
        ("x = self.gelu(x)", "x = self.gelu(x) * torch.sigmoid(3 * x)", "the feed-forward of block 0"),
    ],
)
def test_of_an_unknown_mistake_the_first_place_is_told(
    theirs: Theirs, tmp_path: Path, old: str, new: str, place: str
) -> None:
    answer = answer_to(theirs, FILES["nano"], tmp_path, old, new)
    assert (answer.verdict, answer.confident) == ("wrong", False)
    assert place in answer.said


def test_a_mistake_after_the_head_is_told_there_whichever_gelu_it_has(theirs: Theirs, tmp_path: Path) -> None:
    """All places are right under its own GELU: those that differ under the other one are no place of its mistake."""
    answer = answer_to(
        theirs, FILES["nano"], tmp_path, "logits = self.lm_head(x)", "logits = 5 * torch.tanh(self.lm_head(x) / 5)"
    )
    assert (answer.verdict, answer.confident) == ("wrong", False)
    assert answer.said == "the first place that differs is what follows the head"


# --- without weights -------------------------------------------------------------------------------------------------

SEEN = "seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
MIXED = "x = x + self.zeta(seen.transpose(1, 2).reshape(b, t, -1) @ tell)"
LAST = "return F.layer_norm(x, x.shape[-1:]) @ self.alpha.T"


def test_a_model_of_unknown_names_is_asked_what_needs_no_weights(theirs: Theirs, tmp_path: Path) -> None:
    answer = answer_to(theirs, NOBODY, tmp_path)
    assert answer.verdict == "unclear"
    assert "ask.0" in answer.said
    assert "one batch by heart" in answer.held


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (SEEN, SEEN.replace("True", "False"), "sees the future"),
        (SEEN, "seen = v", "does not see the first one"),
        ("x = self.alpha[ids] + self.omega[:t]", "x = self.alpha[ids] + 0 * self.omega[:t]", "get no gradient"),
        (MIXED, MIXED.replace("self.zeta", "F.dropout"), "not repeatable"),
        (MIXED, "x = x + (seen.transpose(1, 2).reshape(b, t, -1) @ tell) + 0.1 * x.mean(0, keepdim=True)", "batch"),
        (SEEN, f"q = q * 0\n            {SEEN}", "get no gradient"),
        (SEEN, f"{SEEN}.detach()", "get no gradient"),
        (LAST, f"return ({LAST.removeprefix('return ')}).detach()", "no gradient"),
        (LAST, f"{LAST} * 1e-3", "not learnt by heart"),
        (LAST, f"{LAST} / 0", "not finite"),
    ],
)
def test_what_needs_no_weights_is_seen(theirs: Theirs, tmp_path: Path, old: str, new: str, said: str) -> None:
    answer = answer_to(theirs, NOBODY, tmp_path, old, new)
    assert answer.verdict == "wrong"
    assert said in answer.said + answer.at


TURNED = """q, k = (
                torch.cat((one[..., 0::2] * c - one[..., 1::2] * s, one[..., 0::2] * s + one[..., 1::2] * c), -1)
                for one in (q, k)
                for c, s in [((torch.arange(t)[:, None] * 0.7 ** torch.arange(one.size(-1) // 2)).cos(),
                              (torch.arange(t)[:, None] * 0.7 ** torch.arange(one.size(-1) // 2)).sin())]
            )"""


def test_positions_in_queries_and_keys_alone_are_no_fault(theirs: Theirs, tmp_path: Path) -> None:
    """With them one token repeated says the same everywhere, as without positions: a note, no verdict."""
    text = NOBODY.read_text(encoding="utf-8").replace(" + self.omega[:t]", "")
    text = "\n".join(line for line in text.splitlines() if "self.omega" not in line)
    text = text.replace("            seen =", f"            {TURNED}\n            seen =")
    path = tmp_path / "turned.py"
    path.write_text(text, encoding="utf-8")
    (answer,) = check_within(theirs, path, ["gpt"]).answers
    assert answer.verdict == "unclear"
    assert "one batch by heart" in answer.held
    assert any("rotary" in note for note in answer.notes)


def test_a_model_without_a_position_table_is_asked_the_rest(theirs: Theirs, tmp_path: Path) -> None:
    text = FILES["nano"].read_text(encoding="utf-8")
    text = text.replace(" + self.transformer.wpe(pos)", "").replace(
        '"wpe": nn.Embedding(config.block_size, config.n_embd),', ""
    )
    path = tmp_path / "no_table.py"
    path.write_text(text, encoding="utf-8")
    (answer,) = check_within(theirs, path, ["gpt"]).answers
    assert answer.verdict == "unclear"
    assert "wpe" in answer.said
    assert "one batch by heart" in answer.held


def test_right_numbers_that_do_not_learn_are_seen(theirs: Theirs, tmp_path: Path) -> None:
    answer = answer_to(theirs, FILES["nano"], tmp_path, "y = att @ v", "y = att.detach() @ v")
    assert answer.verdict == "wrong"
    assert "get no gradient" in answer.said


def test_large_first_weights_are_a_note(theirs: Theirs, tmp_path: Path) -> None:
    answer = answer_to(theirs, NOBODY, tmp_path, "0.1 * torch.randn(vocab_size", "3 * torch.randn(vocab_size")
    assert any("untrained" in note for note in answer.notes)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(1, 13))
def test_correct_models_are_not_blamed(theirs: Theirs, seed: int) -> None:
    solved = FILES["np"].parent / "solved.py"
    for path in (FILES["nano"], FILES["torch"], FILES["other"], solved):
        answers = check_within(theirs, path, ["gpt", *(["train_on_batch"] if path == solved else [])], seed).answers
        assert [(one.thing, one.said, one.at) for one in answers if not one.is_fine] == []
    (answer,) = check_within(theirs, NOBODY, ["gpt"], seed).answers
    assert answer.verdict == "unclear"
