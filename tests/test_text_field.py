"""Cases from the field about text (F06 to F10, F12, F13, F27, F29), on the shared files. Their small forms, which need
no files, are in test_text.py and test_text_batches.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from plainformer.faults import PlainformerError
from plainformer.text import Tokenizer, check_lengths, eval_blocks, read_text, split, train_tokenizer, write_tokens


@pytest.fixture(scope="module")
def texts(cases: Path) -> Path:
    return cases / "cases" / "field" / "hand" / "text"


@pytest.fixture(scope="module")
def models(cases: Path) -> Path:
    return cases / "cases" / "field" / "hand" / "ckpt"


@pytest.mark.parametrize(
    "name, found", [("nine_chars", {"train part": 8, "validation part": 1}), ("hundred_chars", {"validation part": 10})]
)
def test_f06_a_text_shorter_than_the_context_is_refused_for_the_part_that_is_short(
    texts: Path, tmp_path: Path, name: str, found: dict[str, int]
) -> None:
    path = texts / f"{name}.txt"
    train, validation = split(write_tokens(path, train_tokenizer("characters", path), tmp_path / "tokens").n_tokens)
    with pytest.raises(PlainformerError) as caught:
        check_lengths(64, len(train), len(validation))
    assert [(fault.where, fault.value) for fault in caught.value.faults] == [
        (part, f"{n_tokens} tokens") for part, n_tokens in found.items()
    ]
    assert "65 tokens are needed (context + 1)" in str(caught.value)


def test_f07_an_empty_text_is_refused_and_one_symbol_is_a_vocabulary_of_one(texts: Path, tmp_path: Path) -> None:
    for kind in ("characters", "bpe:300"):
        with pytest.raises(PlainformerError, match="empty"):
            train_tokenizer(kind, texts / "empty.txt")
    with pytest.raises(PlainformerError, match="empty"):
        write_tokens(texts / "empty.txt", train_tokenizer("bytes", texts / "empty.txt"), tmp_path / "tokens")
    one = train_tokenizer("characters", texts / "one_symbol.txt")
    assert (one.n_tokens, one.start_id, one.decode([0])) == (1, 0, "a")
    assert write_tokens(texts / "one_symbol.txt", one, tmp_path / "tokens").n_tokens == 2000


@pytest.mark.parametrize(
    "name, n_symbols, n_bytes, n_tokens, n_notices",
    [
        ("crlf", 41, 1950, 1950, 0),
        ("cr_only", 40, 1910, 1910, 0),
        ("bom", 40, 1910, 1910, 1),
        ("nul", 44, 3835, 3835, 0),
    ],
)
def test_f08_carriage_returns_are_kept_and_a_byte_order_mark_is_dropped_and_said(
    texts: Path, tmp_path: Path, name: str, n_symbols: int, n_bytes: int, n_tokens: int, n_notices: int
) -> None:
    path = texts / f"{name}.txt"
    notices: list[str] = []
    tokenizer = train_tokenizer("characters", path, notices.append)
    made = write_tokens(path, tokenizer, tmp_path / "tokens")
    assert (tokenizer.n_tokens, made.n_bytes, made.n_tokens) == (n_symbols, n_bytes, n_tokens)
    assert len(notices) == n_notices
    assert b"\xef\xbb\xbf" not in tokenizer.pieces
    assert tokenizer.pieces[tokenizer.start_id] == (b" " if name == "cr_only" else b"\n")


@pytest.mark.parametrize("name, at", [("latin1", 1913), ("utf16le", 0)])
def test_f09_bytes_that_are_no_utf8_are_refused_and_the_bytes_kind_keeps_them(
    texts: Path, tmp_path: Path, name: str, at: int
) -> None:
    path = texts / f"{name}.txt"
    for kind in ("characters", "bpe:300"):
        with pytest.raises(PlainformerError, match=f"{name}.txt .* not UTF-8: bad byte at offset {at};"):
            train_tokenizer(kind, path)
    made = write_tokens(path, train_tokenizer("bytes", path), tmp_path / "tokens")
    assert made.tokens.tobytes() == path.read_bytes()


def test_f10_every_character_comes_back_byte_for_byte(texts: Path) -> None:
    path = texts / "unicode_mix.txt"
    raw = path.read_bytes()
    text = "".join(read_text(path))
    for kind in ("characters", "bytes", "bpe:300"):
        tokenizer = train_tokenizer(kind, path)
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == raw
        assert tokenizer.decode(tokenizer.encode(text)).encode() == raw
    characters = train_tokenizer("characters", path)
    assert (characters.n_tokens, len(characters.encode(text))) == (68, 1944)
    assert {"\u00e9".encode(), "\u0301".encode(), "\u2028".encode()} <= set(characters.pieces)


def test_f11_a_letter_that_the_text_never_had_is_named(texts: Path) -> None:
    digits = train_tokenizer("characters", texts / "hundred_chars.txt")
    with pytest.raises(PlainformerError, match=r"--prompt = 'x': U\+0078 at character 2 "):
        digits.encode("12x", "--prompt")
    path = texts / "no_newline_no_space.txt"
    letters = train_tokenizer("characters", path)
    assert letters.decode([letters.start_id]) == min(path.read_text())


def test_f12_markers_in_a_text_are_plain_text(texts: Path, models: Path, tmp_path: Path) -> None:
    path = texts / "special_token_text.txt"
    text = path.read_text()
    assert text.count("<|endoftext|>") == 30
    made = train_tokenizer("bpe:300", path)
    loaded = Tokenizer.load(models / "chain")
    assert (made.control, loaded.control) == ({}, {"<|endoftext|>": 256})
    for tokenizer in (made, loaded):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert not set(ids.tolist()) & set(tokenizer.control.values())
        assert write_tokens(path, tokenizer, tmp_path / "tokens").tokens.tolist() == ids.tolist()
    assert loaded.encode("<|endoftext|>").tolist() == list(b"<|endoftext|>")


def test_f13_a_streamed_text_has_no_half_characters(models: Path) -> None:
    tokenizer = Tokenizer.load(models / "chain")
    raw = " \u00e9B\U0001f415C\u4e2dD".encode()
    for ids, end in (([*raw, 256], ""), (list(raw[:5]), "\ufffd")):
        stream = tokenizer.stream()
        pieces = [stream.push(token) for token in ids]
        assert not any("\ufffd" in piece for piece in pieces)
        assert "".join(pieces) + end == "".join(pieces) + stream.end() == tokenizer.decode(ids)
    assert tokenizer.decode([*raw, 256]) == raw.decode()


def test_f27_each_of_the_40_targets_is_scored_once(texts: Path, models: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(models / "gpt2-tiny")
    made = write_tokens(texts / "eval41.txt", tokenizer, tmp_path / "tokens")
    for stride, n_blocks in ((None, 3), (8, 4), (1, 25)):
        blocks = list(eval_blocks(made.tokens, 16, stride))
        scored = [token for _, y_T, first in blocks for token in y_T[first:].tolist()]
        assert scored == made.tokens[1:].tolist()
        assert len(blocks) == n_blocks
    assert len(list(eval_blocks(tokenizer.encode("ab"), 16))) == 1
    for name in ("one_char", "empty"):
        with pytest.raises(PlainformerError, match="at least 2"):
            eval_blocks(tokenizer.encode((texts / f"{name}.txt").read_text()), 16)


@pytest.mark.parametrize("name", ["unicode_mix", "ties"])
def test_f29_bpe_training_gives_the_same_file_each_time(texts: Path, name: str) -> None:
    """Across threads and hash seeds: test_text.py. Here the library's own hashes are drawn anew each time."""
    assert len({train_tokenizer("bpe:300", texts / f"{name}.txt").file for _ in range(20)}) == 1
