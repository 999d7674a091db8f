"""Models that others trained say what they say elsewhere: a sorter, stories, letters to sounds, and T5 in both forms.

B batch, T tokens, S source tokens, D d_model, V vocabulary.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import laws
import real_weights
from plainformer import generation, reference
from plainformer.ledger import Ledger
from plainformer.reference import Weights, Where, run
from plainformer.states import Memory, State
from plainformer.tree import walk
from real_weights import Real, log_softmax, nats, tensors, truth
from specs import s

FLOAT64, FLOAT32 = 1e-9, 5e-6  # of numbers that others computed in float64, in float32


def close(got: object, want: object, what: str, tolerance: float = FLOAT64) -> None:
    laws.close(got, want, what, tolerance)


# --- the sorter -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sorter(cases: Path) -> Real:
    return real_weights.sorter(cases)


def test_the_sorter_sorts_all_that_can_be_asked(sorter: Real, cases: Path) -> None:
    told = truth(cases, "gpt_nano_sort")
    assert Ledger.of(sorter.spec).total == told["model"]["params"]
    questions = [list(digits) for digits in product(range(3), repeat=6)]
    answers = generation.generate(sorter.model, questions, 5, temperature=0.0)
    first = sorter.model(torch.tensor(questions))[:, -1].argmax(-1).tolist()
    got = [row.new for row in answers.rows]
    assert [len(row) for row in got] == [5] * 729
    assert [row[0] for row in got] == first
    # The last of the six digits comes one past the context that generation may fill: from the logits themselves.
    whole_BT = torch.tensor([question + new for question, new in zip(questions, got, strict=True)])
    last = sorter.model(whole_BT)[:, -1].argmax(-1).tolist()
    exact = sum([*new, end] == sorted(q) for q, new, end in zip(questions, got, last, strict=True))
    assert (exact, len(questions)) == (told["sort_exact"], told["sort_total"]) == (729, 729)


def test_the_reference_sorts_too_and_knows_how_sure_it_is(sorter: Real, cases: Path) -> None:
    """Teacher-forced: every digit of the answer is the best one, and the mean of all nats is the truth's."""
    lost: list[float] = []
    for digits in product(range(3), repeat=6):
        row = [*digits, *sorted(digits)]
        logits_TV = reference.logits(sorter.spec, sorter.arrays, row[:-1])[5:]
        assert logits_TV.argmax(-1).tolist() == row[6:]
        lost.extend(nats(logits_TV, row[6:]))
    want = truth(cases, "gpt_nano_sort")["teacher_forced_mean_nll_all_729"]
    assert np.mean(lost) == pytest.approx(want, rel=1e-9)


def test_the_sorters_logits_are_those_of_others(sorter: Real, cases: Path) -> None:
    for one in truth(cases, "gpt_nano_sort")["cases"]:
        close(reference.logits(sorter.spec, sorter.arrays, one["ids"]), one["logits"], "the reference")
        close(sorter.model(torch.tensor([one["ids"]]))[0], one["logits"], "the model")


def places(sorter: Real, tokens_T: np.ndarray) -> dict[str, np.ndarray]:
    """Each step of the first block by the reference's rules alone, under llm-viz's names."""
    first, _ = sorter.spec.decoder.layers[0], sorter.spec.decoder.positions  # type: ignore[union-attr]
    (mixer,), (second,) = (residual.branches for residual in first)
    here, w = Where(np.arange(len(tokens_T))), Weights(sorter.arrays)
    layer, part, feed = w.at("decoder.layers.0"), mixer.part, second.part
    assert isinstance(part, s.Attention)
    assert isinstance(feed, s.FeedForward)
    seen: dict[str, np.ndarray] = {"tok_emb": run(sorter.spec.embedding, w.at("embedding"), tokens_T, here)}
    seen["pos_emb"] = run(sorter.spec.decoder.positions, w.at("decoder.positions"), here.positions_T, here)  # type: ignore[union-attr]
    seen["x"] = seen["tok_emb"] + seen["pos_emb"]
    seen["ln1"] = run(mixer.norm_in, layer.at("attention_norm"), seen["x"], here)
    at = layer.at("attention")
    projected = [
        run(linear, at.at(name), seen["ln1"], here)
        for name, linear in zip("qkv", (part.q, part.k, part.v), strict=True)
    ]
    seen["qkv"] = np.concatenate(projected, -1)
    seen |= {name: reference.heads(y, part.d_head) for name, y in zip("qkv", projected, strict=True)}
    kept: dict[str, np.ndarray] = {}
    seen["yProj"] = run(part, at, seen["ln1"], Where(here.positions_T, trace=kept))
    seen["attSm"] = kept["decoder.layers.0.attention.weights"]
    seen["y"] = reference.together(seen["attSm"] @ seen["v"])
    seen["attnResid"] = seen["x"] + seen["yProj"]
    seen["ln2"] = run(second.norm_in, layer.at("feed_forward_norm"), seen["attnResid"], here)
    seen["fc"] = run(feed.up, layer.at("feed_forward").at("up"), seen["ln2"], here)
    seen["mlp"] = run(feed, layer.at("feed_forward"), seen["ln2"], here)
    seen["mlpResid"] = seen["attnResid"] + seen["mlp"]
    return seen


def stream(sorter: Real, tokens_T: np.ndarray) -> dict[str, np.ndarray]:
    """What the reference keeps of a whole pass, under llm-viz's names."""
    kept: dict[str, np.ndarray] = {}
    seen = {"lm_head": reference.logits(sorter.spec, sorter.arrays, tokens_T, trace=kept)}
    seen["ln_f"] = reference.hidden(sorter.spec, sorter.arrays, tokens_T)
    seen |= {"x": kept["decoder.stream.0"]} | {f"block{i}": kept[f"decoder.stream.{i + 1}"] for i in range(3)}
    return seen | {"probs": np.exp(log_softmax(seen["lm_head"]))}


def hooked(sorter: Real, tokens_T: np.ndarray) -> dict[str, np.ndarray]:
    """What the model's modules say in a whole pass, under llm-viz's names."""
    seen: dict[str, np.ndarray] = {}
    layer = sorter.model.decoder.layers[0]
    watched = {"ln1": layer.attention_norm, "yProj": layer.attention, "ln2": layer.feed_forward_norm}
    watched |= {"fc": layer.feed_forward.up, "mlp": layer.feed_forward, "tok_emb": sorter.model.embedding}
    watched |= {f"block{i}": block for i, block in enumerate(sorter.model.decoder.layers)}
    watched |= {"ln_f": sorter.model.decoder, "lm_head": sorter.model.head}
    inputs = {"x": layer, "gelu": layer.feed_forward.down, "y": layer.attention.out}

    def keep(name: str, said: Tensor) -> None:
        seen[name] = said.detach()[0].numpy()

    hooks = [
        *(m.register_forward_hook(lambda _, __, out, name=name: keep(name, out)) for name, m in watched.items()),
        *(m.register_forward_pre_hook(lambda _, args, name=name: keep(name, args[0])) for name, m in inputs.items()),
    ]
    sorter.model(torch.from_numpy(tokens_T)[None])
    for hook in hooks:
        hook.remove()
    return seen


def test_the_sorters_own_activations_are_ours_at_every_place(sorter: Real, cases: Path) -> None:
    _, partials = real_weights.decoded(cases / "data" / "gpt-nano-sort-t0-partials.json")
    rows = partials.pop("idx").astype(np.int64)
    assert rows.tolist() == truth(cases, "gpt_nano_sort")["upstream_partials"]["idx"]
    checked: set[str] = set()
    for b, tokens_T in enumerate(rows):
        for side, seen in (
            ("the reference's rules", places(sorter, tokens_T)),
            ("the reference", stream(sorter, tokens_T)),
            ("the model", hooked(sorter, tokens_T)),
        ):
            for name, array in seen.items():
                want = partials[name]
                close(array, want[b if len(want) > 1 else 0], f"{name} by {side}", FLOAT32)
            checked |= seen.keys()
    # scores before softmax stand nowhere here: their softmax does
    assert partials.keys() - checked == {"att"}


# --- stories ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stories(cases: Path) -> Real:
    return real_weights.stories(cases)


def test_a_trained_llama_says_its_truth(stories: Real, cases: Path) -> None:
    told, arrays = truth(cases, "stories260k"), tensors(cases, "stories260k_tensors")
    assert Ledger.of(stories.spec).total == told["model"]["params"]
    ids_T = arrays["ids"].astype(np.int64)
    ours_TV = reference.logits(stories.spec, stories.arrays, ids_T)
    close(ours_TV, arrays["logits_f64"], "the reference")
    close(stories.model(torch.from_numpy(ids_T)[None])[0], arrays["logits_f64"], "the model")
    assert np.abs(ours_TV - arrays["logits_runc_f32"]).max() < 3e-5, "the C program's float32"


def test_a_trained_llama_has_the_truths_stream_after_every_layer(stories: Real, cases: Path) -> None:
    arrays = tensors(cases, "stories260k_tensors")
    ids_T, kept, seen = arrays["hidden_ids"].astype(np.int64), {}, {}
    close(reference.logits(stories.spec, stories.arrays, ids_T, trace=kept), arrays["hidden_logits_f64"], "logits")
    stories.model(torch.from_numpy(ids_T)[None], trace=seen)
    for i, want_TD in enumerate(arrays["hidden_states_f64"]):
        close(kept[f"decoder.stream.{i}"], want_TD, f"the reference after {i} layers")
        close(seen[f"decoder.stream.{i}"][0], want_TD, f"the model after {i} layers")


def test_stories_are_told_word_for_word(stories: Real, cases: Path) -> None:
    pieces = real_weights.pieces(cases)
    for one in truth(cases, "stories260k")["greedy"]:
        prompt, want = one["prompt_ids"], one["greedy_ids"]
        told = generation.generate(stories.model, [prompt], len(want), temperature=0.0).rows[0]
        assert told.new == want
        in_float32 = generation.generate(stories.model.float(), [prompt], len(want), temperature=0.0).rows[0]
        stories.model.double()
        assert in_float32.new == want
        best_TV = reference.logits(stories.spec, stories.arrays, prompt + want[:-1])[len(prompt) - 1 :]
        assert best_TV.argmax(-1).tolist() == want, "the reference"
        top2 = np.sort(best_TV, -1)[:, -2:]
        assert (top2[:, 1] - top2[:, 0]).min() == pytest.approx(one["min_top1_top2_margin"], rel=1e-6)
        for top in one["next_token_top5"]:
            assert best_TV[0, top["id"]] == pytest.approx(top["logit"], rel=1e-9)
            assert log_softmax(best_TV)[0, top["id"]] == pytest.approx(top["logprob"], rel=1e-9)
        assert np.argsort(-best_TV[0])[:5].tolist() == [top["id"] for top in one["next_token_top5"]]
        text = b"".join(pieces[token] for token in [*prompt[1:], *want]).decode("utf-8", "replace")
        assert one["text"].strip() == text.strip()


def test_a_text_costs_a_trained_llama_the_truths_nats(stories: Real, cases: Path) -> None:
    for one in truth(cases, "stories260k")["nll"]:
        ids = one["ids"]
        by_reference = nats(reference.logits(stories.spec, stories.arrays, ids[:-1]), ids[1:])
        by_model = nats(stories.model(torch.tensor([ids[:-1]]))[0].detach().numpy(), ids[1:])
        for lost in (by_reference, by_model):
            assert len(lost) == one["tokens"]
            assert lost.sum() == pytest.approx(one["sum_nll"], rel=1e-9)
            assert lost.mean() == pytest.approx(one["mean_nll"], rel=1e-9)


# --- letters to sounds ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speller(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Real:
    return real_weights.letters_to_sounds(cases, tmp_path_factory.mktemp("folders"))


@torch.no_grad()
def greedy(real: Real, memory: Memory, n_rows: int, start: int, n_new: int, end: int) -> list[list[int]]:
    """Each row's best tokens up to `end`, every token read once."""
    state, new_BT = State(n_rows, capacity=n_new + 1), torch.full((n_rows, 1), start)
    rows = [[start] for _ in range(n_rows)]
    for _ in range(n_new):
        new_BT = real.model(new_BT, state, memory=None if state.memory else memory)[:, -1:].argmax(-1)
        for row, token in zip(rows, new_BT[:, 0].tolist(), strict=True):
            if row[-1] != end or len(row) == 1:
                row.append(token)
    return rows


def test_words_are_spelled_in_the_truths_sounds(speller: Real, cases: Path) -> None:
    told, arrays = truth(cases, "bart_g2p"), tensors(cases, "bart_g2p_tensors")
    letters, sounds = told["grapheme_chars"], told["phoneme_chars"]
    assert Ledger.of(speller.spec).total + speller.spec.vocab_size == 751_551  # theirs counts a buffer of zeros too
    for one in told["cases"]:
        word, ids, want = one["word"], one["input_ids"], one["greedy_ids"]
        assert ids == [1, *(letters.index(c) if c in letters else 3 for c in word), 2]
        memory = speller.model.encode(torch.tensor([ids]))
        close(memory.said_BSD[0], arrays[f"{word}__encoder"], f"what {word} is to the encoder")
        close(speller.model(torch.tensor([want]), memory=memory)[0], arrays[f"{word}__logits"], f"{word} by the model")
        logits_TV = reference.logits(speller.spec, speller.arrays, want, source_S=ids)
        close(logits_TV, arrays[f"{word}__logits"], f"{word} by the reference")
        assert logits_TV[:-1].argmax(-1).tolist() == want[1:]
        top2 = np.sort(logits_TV[:-1], -1)[:, -2:]
        assert (top2[:, 1] - top2[:, 0]).min() == pytest.approx(one["min_margin"], rel=1e-9)
        assert greedy(speller, memory, 1, start=1, n_new=len(want) + 5, end=2) == [want]
        assert "".join(sounds[i] for i in want if i > 3) == one["phonemes"]


def test_words_of_all_lengths_are_spelled_at_once(speller: Real, cases: Path) -> None:
    told = truth(cases, "bart_g2p")["cases"]
    lengths = [len(one["input_ids"]) for one in told]
    source_BS = torch.tensor(
        [one["input_ids"] + [0] * (max(lengths) - n) for one, n in zip(told, lengths, strict=True)]
    )
    memory = speller.model.encode(source_BS, lengths)
    got = greedy(speller, memory, len(told), start=1, n_new=24, end=2)
    assert got == [one["greedy_ids"] for one in told]


def test_the_likeliest_spellings_are_as_likely_as_elsewhere(speller: Real, cases: Path) -> None:
    """The log-probability of each whole sequence: exact ones in float64, those of a beam in float32."""
    told = truth(cases, "bart_g2p")
    inputs = {one["word"]: one["input_ids"] for one in told["cases"]}

    def likelihood(word: str, ids: list[int]) -> float:
        logits_TV = reference.logits(speller.spec, speller.arrays, ids[:-1], source_S=inputs[word])
        return -float(nats(logits_TV, ids[1:]).sum())

    for one in told["beam"]["cases"]:
        word = one["word"]
        exact = [likelihood(word, best["ids"]) for best in one["exact_top3"]]
        assert exact == pytest.approx([best["logprob"] for best in one["exact_top3"]], rel=1e-8)
        assert exact == sorted(exact, reverse=True)
        for penalty in (0, 1):
            for beam in one[f"hf_beam4_length_penalty_{penalty}"]:
                score = likelihood(word, beam["ids"]) / (len(beam["ids"]) - 1) ** penalty
                assert score == pytest.approx(beam["score"], rel=1e-4, abs=1e-6)


# --- T5 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewritten", [False, True], ids=["as published", "as rewritten"])
@pytest.mark.parametrize("variant", ["v1_0", "v1_1"])
def test_t5_in_both_forms_says_its_truth(variant: str, rewritten: bool, cases: Path, tmp_path: Path) -> None:
    told: dict[str, Any] = truth(cases, "t5_tiny")["variants"][variant]
    io, real = tensors(cases, f"t5_tiny_{variant}_io"), real_weights.t5(cases, tmp_path, variant, rewritten)
    head, own = real.spec.head, variant == "v1_1" and not rewritten
    assert head is not None
    assert (head.tied, head.scale) == (not own, 32**-0.5 if variant == "v1_0" else 1.0)
    # The rewritten config ties 1.1's head, and its file has the table's numbers there: one matrix then, not two.
    assert Ledger.of(real.spec).total + 64 * 32 * (variant == "v1_1" and rewritten) == told["params"]
    source_BS, tokens_BT = (torch.from_numpy(io[name].astype(np.int64)) for name in ("input_ids", "decoder_input_ids"))
    lengths = io["attention_mask"].sum(-1).tolist()
    assert lengths != [150, 150], "no row is padded"
    memory = real.model.encode(source_BS, lengths)
    close(real.model(tokens_BT, memory=memory), io["logits_f64"], "the model")
    for b, n in enumerate(lengths):
        close(memory.said_BSD[b, :n], io["encoder_last_f64"][b, :n], f"the encoder, row {b}")
        alone = reference.logits(real.spec, real.arrays, io["decoder_input_ids"][b], source_S=io["input_ids"][b, :n])
        close(alone, io["logits_f64"][b], f"the reference, row {b}")
    rows = greedy(real, memory, 2, start=0, n_new=12, end=1)
    assert [row + [0] * (13 - len(row)) for row in rows] == told["greedy12"]


# --- seen red ---------------------------------------------------------------------------------------------------------


def test_a_wrong_rule_is_seen_in_real_weights(sorter: Real, stories: Real, speller: Real, cases: Path) -> None:
    """Another form of GELU, pairs as halves, positions from row 0: each is off by more than is allowed."""
    import specs

    erf = specs.change(sorter.spec, s.FeedForward, activation="gelu")
    halves, first = specs.turned(stories.spec, interleaved=False), specs.change(speller.spec, s.Table, offset=0)
    assert [part for _, part in walk(erf)] != [part for _, part in walk(sorter.spec)]
    one = truth(cases, "gpt_nano_sort")["cases"][1]
    off = np.abs(reference.logits(erf, sorter.arrays, one["ids"]) - one["logits"]).max()
    assert 1e-4 < off < 1e-2, "the truth says 4.5e-3"
    arrays = tensors(cases, "stories260k_tensors")
    with pytest.raises(AssertionError, match="off by"):
        close(reference.logits(halves, stories.arrays, arrays["ids"]), arrays["logits_f64"], "halves")
    hello = truth(cases, "bart_g2p")["cases"][0]
    said = reference.logits(first, speller.arrays, hello["greedy_ids"], source_S=hello["input_ids"])
    with pytest.raises(AssertionError, match="off by"):
        close(said, tensors(cases, "bart_g2p_tensors")["hello__logits"], "row 0")
