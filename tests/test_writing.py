"""Tokens given out as text: whole characters, as they come, and nothing of a stop text."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automata import UNICODE, bytes_and_end, chain, characters, text_chain
from plainformer import PlainformerError
from plainformer.generation import Decoding, Sampling, TextStream, pieces
from plainformer.model import Transformer
from plainformer.text import Tokenizer


def written(
    model: Transformer, tokenizer: Tokenizer, prompts: list[str], n_new: int, *stops: str
) -> tuple[Any, list[list[str]]]:
    run = Decoding(
        model,
        [tokenizer.encode(prompt).tolist() for prompt in prompts],
        n_new,
        Sampling(temperature=0),
        stop_ids=tokenizer.control.values(),
    )
    out: list[list[str]] = [[] for _ in prompts]
    for row, piece in pieces(run, tokenizer, stops):
        out[row].append(piece)
    return run.rows, out


def test_no_piece_holds_half_a_character_and_pieces_joined_are_the_text() -> None:
    model, tokenizer = text_chain(UNICODE), bytes_and_end()
    (row,), (said,) = written(model, tokenizer, ["A"], 30)
    assert "".join(said) == " éB🐕C中D" == tokenizer.decode(row.new)
    assert said == [" ", "é", "B", "🐕", "C", "中", "D"]
    assert row.new[-1] == 256
    assert row.finish_reason == "stop"


@pytest.mark.parametrize("n_new", range(14))
def test_a_text_cut_inside_a_character_ends_as_its_unstreamed_form(n_new: int) -> None:
    model, tokenizer = text_chain(UNICODE), bytes_and_end()
    (row,), (said,) = written(model, tokenizer, ["A"], n_new)
    assert "".join(said) == tokenizer.decode(row.new)
    assert all("\ufffd" not in piece for piece in said[:-1])
    assert "".join(said).count("\ufffd") <= 1


@pytest.mark.parametrize(
    "stops, text, reason",
    [
        (["D"], " éB🐕C中", "stop"),
        (["🐕C"], " éB", "stop"),
        (["B🐕X"], " éB🐕C中D", "stop"),  # begins, and is something else: given out late, but given out
        (["中D!"], " éB🐕C中D", "stop"),  # begun at the end
        (["C", "🐕C"], " éB", "stop"),
        (["zzz"], " éB🐕C中D", "stop"),
    ],
)
def test_a_text_ends_right_before_a_stop_text(stops: list[str], text: str, reason: str) -> None:
    (row,), (said,) = written(text_chain(UNICODE), bytes_and_end(), ["A"], 30, *stops)
    assert "".join(said) == text
    assert row.finish_reason == reason


def test_a_stop_text_that_is_reached_stops_the_drawing() -> None:
    tokenizer = characters("xyz")
    (row, other), (said, _) = written(chain({0: 1, 1: 2, 2: 0}, n=3), tokenizer, ["x", "y"], 20, "zx")
    assert "".join(said) == "y"
    assert row.new == [1, 2, 0]
    assert row.finish_reason == "stop"
    assert other.new == [2, 0]


def test_a_stop_text_at_the_last_token_is_a_stop() -> None:
    (row,), (said,) = written(chain({0: 1, 1: 2, 2: 0}, n=3), characters("xyz"), ["x"], 2, "yz")
    assert (said, row.finish_reason) == ([], "stop")


def test_a_text_of_nothing_stops_nothing_and_is_refused() -> None:
    with pytest.raises(PlainformerError):
        TextStream(characters("ab"), [""])


def until_a_stop(text: str, stops: list[str]) -> str:
    """The definition, a character at a time: the text before the longest stop that is complete first."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


def cut(raw: bytes, places: list[int]) -> Tokenizer:
    """A tokenizer whose tokens 0, 1, 2 ... are these bytes, cut at these places."""
    ends = sorted({place % len(raw) for place in places} | {0, len(raw)}) if raw else []
    return Tokenizer("bpe", tuple(raw[a:b] for a, b in pairwise(ends)), {}, "")


@given(
    st.text("ab🐕é", max_size=14),
    st.lists(st.text("ab🐕é", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 100), max_size=20),
)
@example("abb", ["abb", "b"], [])  # one piece in which the later to begin is complete first
@example("aab", ["b", "ab"], [])
def test_streamed_text_is_the_text_before_the_first_stop_however_it_is_cut(
    text: str, stops: list[str], places: list[int]
) -> None:
    tokenizer, want = cut(text.encode(), places), until_a_stop(text, stops)
    stream = TextStream(tokenizer, stops)
    said = ""
    for token in range(tokenizer.n_tokens):
        said += stream.push(token)
        assert want.startswith(said), "no part of a stop text was given out"
    assert said + stream.end() == want
    assert stream.stopped == (want != text)
