"""L3 of encoder-decoders that write: greedy and by beams, token for token and score for score as transformers.

The models are tiny, random, saved by their class and loaded from the folder. B rows, S source tokens.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import pytest
import torch

import plainformer as pf
import real_weights
from plainformer import PlainformerError
from plainformer.generation import Beams, Decoding, Request, Rules, generate, published, search
from plainformer.generation.beams import Search, Text
from plainformer.model import Transformer
from strangers import STRANGERS, VOCAB, float64, made

EOS, START = 2, 5
PAIRS = ("t5", "bart", "marian")
SOURCES = [[7, 11, 4, 9, 2], [8, 3, 2], [12, 13, 14, 15, 16, 17, 2]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Transformer]]:
    """transformers' model in float64, and ours of its folder."""
    found = {}
    for name in (*PAIRS, "gpt2"):
        model = made(STRANGERS[name])
        with torch.no_grad():
            for p in filter(lambda p: p.requires_grad, model.parameters()):  # not Marian's sines
                p.mul_(0.6)  # flatter: several texts are about as likely
        folder = tmp_path_factory.mktemp(name)
        model.float().save_pretrained(folder)
        model.generation_config.forced_eos_token_id = model.generation_config.forced_bos_token_id = None
        found[name] = model.double(), pf.load(folder).double()
    return found


def theirs(model: Any, rows: list[list[int]], **told: Any) -> tuple[list[list[int]], list[float]]:
    """(new tokens up to their end, scores): each row asked alone."""
    tokens, scores = [], []
    with float64(), torch.no_grad():
        for row in rows:
            ids_BS = torch.tensor([row])
            told = {"pad_token_id": 0, "output_scores": True, "return_dict_in_generate": True, **told}
            if model.config.is_encoder_decoder:
                told |= {"decoder_start_token_id": START, "use_cache": False}  # its own takes T5's layers for as many
            answer = model.generate(ids_BS, attention_mask=torch.ones_like(ids_BS), do_sample=False, **told)
            n_prompt = 1 if model.config.is_encoder_decoder else len(row)
            n_kept = told.get("num_return_sequences", 1)
            for sequence in answer.sequences[:n_kept, n_prompt:].tolist():
                stops = told["eos_token_id"] if isinstance(told["eos_token_id"], list) else [EOS]
                ends = next((i + 1 for i, token in enumerate(sequence) if token in stops), len(sequence))
                tokens.append(sequence[:ends])
            scores += getattr(answer, "sequences_scores", torch.zeros(n_kept)).tolist()
    return tokens, scores


def ours(model: Transformer, rows: list[list[int]], n_new: int, **told: Any) -> Any:
    pair = model.spec.encoder is not None
    told = {"stop_ids": [EOS], **told}
    return generate(model, [[START]] if pair else rows, n_new, sources=rows if pair else None, **told)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("cached", [True, False])
def test_the_best_tokens_of_ragged_sources_are_transformers_own(name: str, cached: bool, both: Any) -> None:
    model, mine = both[name]
    want, _ = theirs(model, SOURCES, max_new_tokens=12, eos_token_id=EOS)
    found = ours(mine, SOURCES, 12, temperature=0, cached=cached)
    assert found.new == want
    assert found.finish_reasons == ["stop" if EOS in row else "length" for row in want]


SEARCHES: dict[str, tuple[dict[str, Any], Rules]] = {
    "plain": ({}, Rules()),
    "long texts": ({"length_penalty": 2.0}, Rules()),
    "short texts": ({"length_penalty": -1.0}, Rules()),
    "no penalty, to the end": ({"length_penalty": 0.0, "early_stopping": "never"}, Rules()),
    "to the end": ({"early_stopping": "never"}, Rules()),
    "ends early": ({"early_stopping": True}, Rules()),
    "as BART summarises": (
        {"early_stopping": True, "length_penalty": 2.0},
        Rules(min_length=6, no_repeat=2, first=3, last=EOS),
    ),
    "a penalty of what is said again": ({}, Rules(repetition_penalty=1.7)),
    "not these": ({}, Rules(never=(EOS, 7, 8))),
    "not these runs": ({}, Rules(never=((8, 9), (11,), (4, 4), (5, 12), (13, 14, 15)))),
    "so many new ones": ({"length_penalty": -1.0}, Rules(min_new=7)),
    "none of these first": ({}, Rules(not_first=tuple(range(7, 29)), first=6)),
    "what is left sums to 1": ({}, Rules(never=(3, 8, 9, 11), renormalised=True, repetition_penalty=1.3)),
}


def in_their_words(rules: Rules) -> dict[str, Any]:
    said = {
        "repetition_penalty": rules.repetition_penalty if rules.repetition_penalty != 1 else None,
        "no_repeat_ngram_size": rules.no_repeat or None,
        "min_length": rules.min_length or None,
        "forced_bos_token_id": rules.first,
        "forced_eos_token_id": rules.last,
        "suppress_tokens": [one for one in rules.never if isinstance(one, int)] or None,
        "bad_words_ids": [list(one) for one in rules.never if isinstance(one, tuple)] or None,
        "min_new_tokens": rules.min_new or None,
        "begin_suppress_tokens": list(rules.not_first) or None,
        "renormalize_logits": rules.renormalised or None,
    }
    return {key: value for key, value in said.items() if value is not None}


@pytest.mark.parametrize("name", [*PAIRS, "gpt2"])
@pytest.mark.parametrize("way", SEARCHES)
def test_beams_find_transformers_texts_and_scores(name: str, way: str, both: Any) -> None:
    (told, rules), (model, mine) = SEARCHES[way], both[name]
    want, scores = theirs(
        model, SOURCES, max_new_tokens=10, eos_token_id=EOS, num_beams=4, **told, **in_their_words(rules)
    )
    found = ours(mine, SOURCES, 10, n_beams=4, rules=rules, **told)
    assert found.new == want
    assert found.scores == pytest.approx(scores, rel=1e-9)


OFTEN = [2, 6, 9, 11, 13, 17, 18, 21]  # any of these ends a text: searches end, each in its own way


@pytest.mark.parametrize("name", [*PAIRS, "gpt2"])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.5])
def test_a_search_ends_when_transformers_does(name: str, penalty: float, both: Any) -> None:
    model, mine = both[name]
    for stopping in (False, True, "never"):
        told = {"length_penalty": penalty, "early_stopping": stopping}
        want, scores = theirs(model, SOURCES, max_new_tokens=14, eos_token_id=OFTEN, num_beams=3, **told)
        found = ours(mine, SOURCES, 14, n_beams=3, stop_ids=OFTEN, **told)
        assert found.new == want
        assert found.scores == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize("stopping, total, ended", [(True, -0.1, True), (False, -3.0, True), (False, -2.0, False)])
def test_a_search_hopes_for_as_much_as_it_is_told_to(stopping: bool, total: float, ended: bool) -> None:
    """Two finished texts, the worse of score -1.2; the best running one has two tokens, and ten may be."""
    finished = [Text([1], -0.9, -0.9), Text([2], -1.2, -1.2)]
    told = Search([1], 10, Beams(n_beams=2, early_stopping=stopping), frozenset(), [Text([3, 4], total)], finished)
    assert told.ended(2) == ended
    hopeful = Search([1], 10, Beams(n_beams=2, early_stopping="never"), frozenset(), told.running, finished)
    assert not hopeful.ended(2), "at ten tokens it could have -0.3 or better"


def test_all_beams_of_a_row_are_given_best_first(both: Any) -> None:
    model, mine = both["bart"]
    want, scores = theirs(model, SOURCES, max_new_tokens=8, eos_token_id=EOS, num_beams=4, num_return_sequences=4)
    request = Request.of(mine, [[START]], 8, SOURCES, None, "refuse")
    for cached in (True, False):
        found, _ = search(request, Beams(n_beams=4), Rules(), [EOS], cached=cached)
        assert [row.new for rows in found for row in rows] == want
        assert [row.score for rows in found for row in rows] == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_beams_in_float32_find_the_same_texts(name: str, both: Any) -> None:
    _, mine = both[name]
    want = ours(mine, SOURCES, 10, n_beams=4)
    found = ours(mine.float(), SOURCES, 10, n_beams=4)
    mine.double()
    assert found.new == want.new
    assert found.scores == pytest.approx(want.scores, rel=1e-5)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    "rules",
    [
        Rules(repetition_penalty=1.4, min_length=5),
        Rules(no_repeat=1, first=3, last=EOS),
        Rules(min_new=6, never=((5, 3), (3, 16), 9), not_first=(16, 23), renormalised=True),
    ],
)
def test_what_is_forced_and_forbidden_is_so_without_beams_too(name: str, rules: Rules, both: Any) -> None:
    model, mine = both[name]
    want, _ = theirs(model, SOURCES, max_new_tokens=9, eos_token_id=EOS, **in_their_words(rules))
    assert ours(mine, SOURCES, 9, temperature=0, rules=rules).new == want


def test_a_source_is_the_same_alone_and_in_company_drawn_too(both: Any) -> None:
    """L4: and several samples of one source are read once."""
    _, mine = both["bart"]
    alone = [ours(mine, [row], 9, seed=4).new[0] for row in SOURCES]
    assert ours(mine, SOURCES, 9, seed=4).new == alone
    assert ours(mine, SOURCES[::-1], 9, seed=4).new == alone[::-1]
    again = ours(mine, [SOURCES[0]] * 3, 9, seed=4, stop_ids=[])
    assert again.new[0][: len(alone[0])] == alone[0]
    assert len(set(map(tuple, again.new))) > 1
    assert again.n_positions == len(SOURCES[0]) + 1 + 3 * 8


def test_rows_slide_past_the_context_each_with_its_own_source(both: Any) -> None:
    """BART's 64 positions, three begun texts: each drops its older half at its own step and still hears its source."""
    mine = both["bart"][1]
    prompts = [[START], [START, *range(6, 26)], [START] * 60]
    want = []
    for prompt, source in zip(prompts, SOURCES, strict=True):
        told = {"temperature": 0, "past_context": "slide", "cached": False}
        want += generate(mine, [prompt], 70, sources=[source], **told).new
    found = generate(mine, prompts, 70, sources=SOURCES, temperature=0, past_context="slide")
    assert found.new == want
    assert [row.dropped for row in found.rows] == [33, 33, 66]


def test_beams_end_where_the_context_does_if_asked_to(both: Any) -> None:
    mine = both["gpt2"][1]
    row = [7] * (mine.spec.max_seq_len - 3)
    found = generate(mine, [row], 9, n_beams=2, past_context="stop")
    assert (len(found.new[0]), found.finish_reasons) == (3, ["context"])
    with pytest.raises(PlainformerError, match="max_seq_len"):
        generate(mine, [row], 9, n_beams=2)
    assert generate(mine, [row], 0, n_beams=2).new == [[]]


def test_what_a_folder_says_of_writing_is_read(tmp_path: Path) -> None:
    said = {"decoder_start_token_id": 2, "eos_token_id": [2, 6], "forced_bos_token_id": 0, "forced_eos_token_id": 2}
    said |= {"min_length": 12, "no_repeat_ngram_size": 3, "num_beams": 4, "length_penalty": 2.0, "early_stopping": True}
    for name in ("config.json", "generation_config.json"):  # the second where both are
        (tmp_path / name).write_text(json.dumps(said | {"num_beams": 4 if name[0] == "g" else 9}))
        found = published(tmp_path)
        assert found.start == 2
        assert found.stop_ids == (2, 6)
        assert found.rules == Rules(min_length=12, no_repeat=3, first=0, last=2)
        assert found.beams == Beams(n_beams=4 if name[0] == "g" else 9, length_penalty=2.0, early_stopping=True)
    more = {"bad_words_ids": [[7], [8, 9]], "suppress_tokens": [3], "renormalize_logits": True, "typical_p": 1.0}
    (tmp_path / "generation_config.json").write_text(json.dumps(more))
    assert published(tmp_path).rules == Rules(never=(3, 7, (8, 9)), renormalised=True)
    assert published(tmp_path).unfollowed == ()
    more |= {"bad_words_ids": [[2], [2, 6]], "eos_token_id": 2, "min_new_tokens": 4, "begin_suppress_tokens": [9]}
    (tmp_path / "generation_config.json").write_text(json.dumps(more | {"guidance_scale": 2.0}))
    assert published(tmp_path).rules == Rules(never=(3, (2, 6)), min_new=4, not_first=(9,), renormalised=True)
    assert published(tmp_path).unfollowed == ("guidance_scale",)
    for wrong in ([7], [[]], [[True]], "7"):
        (tmp_path / "generation_config.json").write_text(json.dumps({"bad_words_ids": wrong}))
        with pytest.raises(PlainformerError, match="bad_words_ids"):
            published(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(PlainformerError, match=r"generation_config\.json: eos_token_id"):
        published(tmp_path)
    assert published(tmp_path / "nowhere").start is None


@pytest.mark.parametrize(
    "told, where",
    [
        ({"sources": None}, "sources"),
        ({"sources": [[4], [5], [6]], "tokens": [[5], [5]]}, "sources"),
        ({"sources": [[]]}, "sources[0]"),
        ({"sources": [[VOCAB]]}, "sources[0]"),
        ({"n_beams": 0}, "n_beams"),
        ({"n_beams": 2, "early_stopping": "soon"}, "early_stopping"),
        ({"rules": {"no_repeat": -1}}, "no_repeat"),
        ({"rules": {"repetition_penalty": 0.0}}, "repetition_penalty"),
        ({"rules": {"first": VOCAB}}, "token id"),
    ],
)
def test_what_cannot_be_is_refused_by_name(told: dict[str, Any], where: str, both: Any) -> None:
    told = {"tokens": [[START]], "sources": [[4]], **told}

    def ask() -> None:
        generate(both["bart"][1], max_new_tokens=2, **(told | {"rules": Rules(**told.get("rules", {}))}))

    with pytest.raises(PlainformerError) as refused:
        ask()
    assert refused.value.faults[0].where == where


def test_a_decoder_alone_takes_no_sources(both: Any) -> None:
    with pytest.raises(PlainformerError, match="no encoder"):
        Decoding(both["gpt2"][1], [[1]], 2, sources=[[1]])


# --- letters to sounds: a BART that others trained --------------------------------------------------------------------


@pytest.fixture(scope="module")
def speller(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    return real_weights.letters_to_sounds(cases, tmp_path_factory.mktemp("speller")).model


@pytest.mark.parametrize("penalty", [0, 1])
def test_a_trained_model_s_beams_are_those_of_the_truth(penalty: int, speller: Transformer, cases: Path) -> None:
    told = json.loads((cases / "cases" / "real" / "bart_g2p_truth.json").read_text())
    letters = told["grapheme_chars"]
    ids = [[1, *(letters.index(c) if c in letters else 3 for c in one["word"]), 2] for one in told["beam"]["cases"]]
    request = Request.of(speller, [[1]], 30, ids, None, "refuse")
    found, _ = search(request, Beams(n_beams=4, length_penalty=float(penalty)), Rules(), [2])
    for one, best in zip(told["beam"]["cases"], found, strict=True):
        want = one[f"hf_beam4_length_penalty_{penalty}"]
        assert [row.tokens for row in best] == [text["ids"] for text in want], one["word"]
        assert [row.score for row in best] == pytest.approx([text["score"] for text in want], rel=1e-4)
        if penalty == 0:
            exact = one["exact_top3"]
            assert best[0].tokens == exact[0]["ids"]
            assert best[0].score == pytest.approx(exact[0]["logprob"], rel=1e-9)
