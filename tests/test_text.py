"""Laws of the tokenizers and of reading text. Token files and batches: test_text_batches.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plainformer.faults import PlainformerError
from plainformer.text import Tokenizer, reading, token_bytes, train_tokenizer
from plainformer.text.reading import read_text, word_pieces
from plainformer.text.tokenizers import byte_names, file_text, from_file_text

KINDS = ("characters", "bytes", "bpe:300")
MARKER = "<|endoftext|>"
# Accents written both ways, joiners, right-to-left marks, odd spaces and line ends, a plane-2 letter, NUL and ESC
MIXED = (
    "e\u0301 \u00e9 caf\u00e9 cafe\u0301\r\nA\u200dB \U0001f468\u200d\U0001f469\u200d\U0001f467 \u05d0\u200f1\u200e\n"
    "\u00a0\u2009\u3000x\u2028y\u2029z\u0085w \U00020000\u6f22\u5b57 \x00\x1b[0m a . b , c 's n't  \t the the then\r"
) * 4


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(PlainformerError) as caught:
        call()
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    return said


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    path = write(tmp_path_factory.mktemp("text") / "mixed.txt", MIXED)
    return {kind: train_tokenizer(kind, path) for kind in KINDS}


# --- there and back ---------------------------------------------------------------------------------------------------


@given(st.text())
def test_decode_of_encode_is_the_text_by_bytes_and_bpe(tokenizers: dict[str, Tokenizer], text: str) -> None:
    for kind in ("bytes", "bpe:300"):
        ids = tokenizers[kind].encode(text)
        assert ids.dtype == np.int32
        assert tokenizers[kind].decode(ids) == text
        assert tokenizers[kind].decode_bytes(ids) == text.encode()


@given(st.text(min_size=1))
def test_decode_of_encode_is_the_text_by_characters(text: str) -> None:
    tokenizer = from_file_text(file_text("characters", sorted(set(text))), "here")
    ids = tokenizer.encode(text)
    assert ids.tolist() == [sorted(set(text)).index(letter) for letter in text]
    assert tokenizer.decode(ids) == text


def test_character_ids_are_code_points_in_rising_order(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("characters", write(tmp_path / "a.txt", "b\u00e9e\u0301\U00020000a\r\n"))
    assert [piece.decode() for piece in tokenizer.pieces if piece] == list("\n\rabe\u00e9\u0301\U00020000")
    assert (tokenizer.kind, tokenizer.n_tokens) == ("characters", 8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_read_the_same_here_and_by_transformers(
    tokenizers: dict[str, Tokenizer], kind: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = tokenizers[kind]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert os.listdir(tmp_path) == ["tokenizer.json"]
    ids = tokenizer.encode(MIXED)
    assert tokenizer.kind == kind.partition(":")[0]

    again = Tokenizer.load(tmp_path)
    assert (again.kind, again.pieces, again.sha256) == (tokenizer.kind, tokenizer.pieces, tokenizer.sha256)
    assert again.encode(MIXED).tolist() == ids.tolist()

    stranger = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert len(stranger) == tokenizer.n_tokens
    assert stranger(MIXED)["input_ids"] == ids.tolist()
    assert stranger.decode(ids.tolist()) == MIXED


def test_ids_of_bytes_are_their_values_and_bpe_begins_with_them(tokenizers: dict[str, Tokenizer]) -> None:
    every_byte = tuple(bytes([value]) for value in range(256))
    assert tokenizers["bytes"].pieces == every_byte
    assert tokenizers["bpe:300"].pieces[:256] == every_byte
    assert tokenizers["bytes"].encode("a\u00e9").tolist() == [97, 195, 169]


@given(st.text(max_size=30))
def test_bytes_of_tokens_add_up_to_the_bytes_of_the_text(tokenizers: dict[str, Tokenizer], text: str) -> None:
    for kind, said in (("bytes", text), ("bpe:300", text), ("characters", MIXED)):
        length_V = token_bytes(tokenizers[kind])
        assert length_V.shape == (tokenizers[kind].n_tokens,)
        assert length_V[tokenizers[kind].encode(said)].sum() == len(said.encode())


# --- streamed ---------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 200))
def test_streamed_pieces_are_whole_characters_and_join_to_the_text(
    tokenizers: dict[str, Tokenizer], text: str, n_ids: int
) -> None:
    for kind in ("bytes", "bpe:300"):
        ids = tokenizers[kind].encode(text.replace("\ufffd", ""))[:n_ids]
        stream = tokenizers[kind].stream()
        pieces = [stream.push(token) for token in ids]
        assert not any("\ufffd" in piece for piece in pieces)
        end = stream.end()
        assert end in ("", "\ufffd")  # one, where the ids end inside a character
        assert "".join(pieces) + end == tokenizers[kind].decode(ids)


@given(st.binary())
def test_streamed_bytes_that_are_no_text_join_to_the_unstreamed_text(
    tokenizers: dict[str, Tokenizer], raw: bytes
) -> None:
    stream = tokenizers["bytes"].stream()
    streamed = "".join(map(stream.push, raw)) + stream.end()
    assert streamed == tokenizers["bytes"].decode(list(raw)) == raw.decode(errors="replace")


def test_a_streamed_character_comes_with_its_last_byte(tokenizers: dict[str, Tokenizer]) -> None:
    stream = tokenizers["bytes"].stream()
    assert [stream.push(byte) for byte in b" \xc3\xa9B\xf0\x9f"] == [" ", "", "\u00e9", "B", "", ""]
    assert stream.end() == "\ufffd"


# --- what cannot be said ----------------------------------------------------------------------------------------------


def test_an_unknown_character_is_named_with_its_place_and_how_many_more(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("characters", write(tmp_path / "digits.txt", "0123456789"))
    said = refusal(lambda: tokenizer.encode("12x", where="--prompt"))
    assert said.startswith("--prompt = 'x': U+0078 at character 2 is not in the vocabulary of 10 characters;")
    said = refusal(lambda: tokenizer.encode("1\U00020000\ud800z" + "1" * 300_000 + "z", offset=1000))
    assert "U+20000 at character 1001" in said
    assert "nor are 3 more characters of it" in said
    strangers = "".join(chr(point) for point in range(300) if chr(point) not in "0123456789")
    assert "nor are 289 more characters of it" in refusal(lambda: tokenizer.encode(strangers + "0"))


def test_half_a_surrogate_pair_is_refused(tokenizers: dict[str, Tokenizer]) -> None:
    for kind in ("bytes", "bpe:300"):
        said = refusal(lambda kind=kind: tokenizers[kind].encode("ab\udc80"))  # type: ignore[misc]
        assert "character 2 (U+DC80) has no UTF-8 form" in said


@pytest.mark.parametrize("token", [-1, 256, -9223372036854775808])
def test_an_id_outside_the_vocabulary_is_refused_by_its_value(tokenizers: dict[str, Tokenizer], token: int) -> None:
    assert refusal(lambda: tokenizers["bytes"].decode([97, token])) == (
        f"token id = {token}: not in this vocabulary: ids go from 0 to 255"
    )


@pytest.mark.parametrize(
    "text, start", [("b\na ", "\n"), ("b a", " "), ("ba", "a"), ("\ufeffba", "a"), ("zz", "z"), ("b\n\ufeff", "\n")]
)
def test_an_empty_prompt_starts_from_newline_or_space_or_token_0(tmp_path: Path, text: str, start: str) -> None:
    tokenizer = train_tokenizer("characters", write(tmp_path / "a.txt", text))
    assert tokenizer.decode([tokenizer.start_id]) == start


@pytest.mark.parametrize(
    "kind, said",
    [
        ("chars", "did you mean characters?"),
        ("byte", "did you mean bytes?"),
        ("bpe", "write it as bpe:1024"),
        ("bpe:1e3", "write it as bpe:1024"),
        ("bep:500", "did you mean bpe:1024?"),
        ("bpe:10", "N must be at least 257: 256 bytes and one merge"),
        ("bpe:256", "N must be at least 257: 256 bytes and one merge"),
        ("words", "must be characters, bytes or bpe:N"),
    ],
)
def test_a_kind_that_is_none_is_refused_with_the_nearest(tmp_path: Path, kind: str, said: str) -> None:
    assert said in refusal(lambda: train_tokenizer(kind, write(tmp_path / "a.txt", "text")))


@pytest.mark.parametrize("content", ["{", "[]", '{"model": {}}', '{"model": {"type": "BPE"}, "decoder": null}'])
def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path, content: str) -> None:
    assert "tokenizer.json" in refusal(lambda: Tokenizer.load(write(tmp_path / "tokenizer.json", content)))
    assert "absent.json" in refusal(lambda: Tokenizer.load(tmp_path / "absent.json"))


def test_another_kind_of_tokenizer_is_refused_by_what_it_is(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    content = json.loads(tokenizers["bytes"].file)
    content["model"]["type"] = "Unigram"
    said = refusal(lambda: Tokenizer.load(write(tmp_path / "tokenizer.json", json.dumps(content))))
    assert "Unigram" in said


def test_a_byte_that_a_vocabulary_lacks_is_named(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    content = json.loads(tokenizers["bytes"].file)
    del content["model"]["vocab"]["A"]
    tokenizer = Tokenizer.load(write(tmp_path / "tokenizer.json", json.dumps(content)))
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"
    said = refusal(lambda: tokenizer.encode("bAc", "--prompt"))
    assert "U+0041" in said
    assert "255 of the 256" in said


# --- markers in text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bytes", "bpe:300"])
def test_a_marker_in_a_text_is_its_letters_never_a_control_token(
    tokenizers: dict[str, Tokenizer], kind: str, tmp_path: Path
) -> None:
    content = json.loads(tokenizers[kind].file)
    end = tokenizers[kind].n_tokens
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"] = [{"id": end, "content": MARKER, "special": True, **flags}]
    content["model"]["vocab"][MARKER] = end
    content["model"]["ignore_merges"] = True  # a word that the vocabulary holds is one token,
    content["pre_tokenizer"]["use_regex"] = False  # and a text is one word
    tokenizer = Tokenizer.load(write(tmp_path / "tokenizer.json", json.dumps(content)))

    assert (tokenizer.kind, tokenizer.n_tokens) == (tokenizers[kind].kind, end + 1)
    assert tokenizer.control == {MARKER: end}
    assert tokenizer.encode(MARKER).max() < end
    assert tokenizer.decode(tokenizer.encode(MARKER)) == MARKER
    assert tokenizer.decode([*tokenizer.encode("a" + MARKER), end]) == "a" + MARKER
    assert tokenizer.stream().push(end) == ""
    assert token_bytes(tokenizer)[end] == 0


def test_training_on_markers_makes_no_control_token(tmp_path: Path) -> None:
    text = f"Docs quote {MARKER} and [PAD], </s>, <s> too.\n" * 30
    tokenizer = train_tokenizer("bpe:300", write(tmp_path / "a.txt", text))
    assert not tokenizer.control
    assert json.loads(tokenizer.file)["added_tokens"] == []
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert all(tokenizer.pieces)


# --- BPE --------------------------------------------------------------------------------------------------------------


def plain_merges(words: Counter[str], n_merges: int) -> list[tuple[str, str]]:
    """BPE with the documented tie rule, slowly: the definition that training is held to."""
    rank = {name: place for place, name in enumerate(sorted(byte_names()))}
    spelled = {word: tuple(word) for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < n_merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in spelled.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], rank[pair[0]], rank[pair[1]]), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        rank.setdefault("".join(best), len(rank))
        for word, parts in spelled.items():
            merged, at = [], 0
            while at < len(parts):
                two = parts[at : at + 2] == best
                merged.append("".join(best) if two else parts[at])
                at += 1 + two
            spelled[word] = tuple(merged)
    return merges


@settings(max_examples=60)
@given(st.lists(st.text("ab\u00e9", min_size=1, max_size=12), min_size=1, max_size=20))
def test_bpe_merges_are_the_most_frequent_by_the_documented_tie_rule(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    path = write(tmp_path_factory.mktemp("bpe") / "a.txt", " ".join(words))
    made = json.loads(train_tokenizer("bpe:300", path).file)["model"]["merges"]
    names = byte_names()
    spelled = ["".join(names[byte] for byte in (" " * (place > 0) + word).encode()) for place, word in enumerate(words)]
    assert [tuple(pair) for pair in made] == plain_merges(Counter(spelled), 44)


def test_bpe_training_is_byte_equal_whatever_the_threads_and_hash_seeds(tmp_path: Path) -> None:
    """A false alarm is impossible; nine equal files by luck are unlikely where ties are everywhere."""
    text = "mnmn opop qrqr stst uvuv opmn qrst\n" * 3 + MIXED
    path = write(tmp_path / "ties.txt", text)
    code = "import sys; from plainformer.text import train_tokenizer as t; print(t('bpe:300', sys.argv[1]).sha256)"
    found = set()
    for seed, threads in (("0", "1"), ("1", "2"), ("2", "1"), ("0", "2")):
        threaded = {"RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": str(threads == "2").lower()}
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed, **threaded}
        found.add(subprocess.run([sys.executable, "-c", code, path], env=env, check=True, capture_output=True).stdout)
    assert found == {f"{train_tokenizer('bpe:300', path).sha256}\n".encode()}


def test_bpe_has_as_many_tokens_as_asked_where_the_text_has_the_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", MIXED)
    assert [train_tokenizer(f"bpe:{n_tokens}", path).n_tokens for n_tokens in (257, 260, 300)] == [257, 260, 300]


def test_bpe_says_when_the_text_gives_fewer_tokens_than_asked(tmp_path: Path) -> None:
    notices: list[str] = []
    tokenizer = train_tokenizer("bpe:5000", write(tmp_path / "a.txt", "abab abab"), notices.append)
    assert tokenizer.pieces[256:] == (b"ab", b"abab")
    assert notices == ["bpe:5000: 258 tokens are enough, no other pair occurs twice"]


# --- pieces and reading -----------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from([" ", "\n", "ab", "7", "\u00e9", ".", "\u2028", "\r\n", "  ", "'s", "\u6f22"])).map(
    "".join
)


@given(WORDS, st.lists(st.integers(0, 60)), st.integers(1, 9), st.integers(10, 30))
def test_pieces_depend_on_the_text_alone_and_lose_nothing(text: str, at: list[int], size: int, longest: int) -> None:
    cuts = sorted({0, len(text), *(min(cut, len(text)) for cut in at)})
    divided = [text[a:b] for a, b in pairwise(cuts)]
    pieces = list(word_pieces(divided, size, longest))
    assert pieces == list(word_pieces([text], size, longest))
    assert "".join(pieces) == text
    assert all(len(piece) <= longest for piece in pieces)


@given(WORDS, st.integers(1, 9))
def test_a_text_in_pieces_is_encoded_as_the_whole(tokenizers: dict[str, Tokenizer], text: str, size: int) -> None:
    bpe = tokenizers["bpe:300"]
    pieces = list(word_pieces([text], size))
    assert bpe.encode_pieces(pieces).tolist() == bpe.encode_pieces([text]).tolist()


@given(st.text(), st.integers(1, 5))
def test_reading_gives_every_character_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, text: str, block: int
) -> None:
    path = write(tmp_path_factory.mktemp("read") / "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK_BYTES", block)
        assert "".join(read_text([path, path])) == text.removeprefix("\ufeff") * 2


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_line_ends_are_kept_and_a_byte_order_mark_is_dropped_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", block)
    notices: list[str] = []
    path = write(tmp_path / "a.txt", "\ufeffa\r\nb\rc\n\ufeff\u2028")
    assert "".join(read_text(path, notices.append)) == "a\r\nb\rc\n\ufeff\u2028"
    assert notices == [f"{path}: dropped the byte-order mark (3 bytes) at its start"]


@pytest.mark.parametrize("block", [1, 2, 1 << 20])
@pytest.mark.parametrize(
    "raw, at",
    [
        (b"abc\xe9d", 3),
        (b"\xff\xfea\0", 0),
        (b"\xef\xbb\xbfab\x80", 5),
        ("\u00e9".encode() * 9 + b"\xe2\x82", 18),
        (b"a\xe2\x82" + "\u00e9".encode(), 1),
        (b"\xed\xa0\x80", 0),
    ],
)
def test_bytes_that_are_no_utf8_are_refused_by_file_and_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes, at: int, block: int
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", block)
    path = write(tmp_path / "a.txt", raw)
    for kind in ("characters", "bpe:300"):
        said = refusal(lambda kind=kind: train_tokenizer(kind, path))  # type: ignore[misc]
        assert said.startswith(f"{path} = {raw[at : at + 1]!r}: not UTF-8: bad byte at offset {at};")
        assert "--tokenizer bytes" in said


@pytest.mark.parametrize("kind", ["characters", "bpe:300"])
def test_empty_absent_and_unreadable_texts_are_refused(tmp_path: Path, kind: str) -> None:
    assert "empty" in refusal(lambda: train_tokenizer(kind, write(tmp_path / "empty.txt", "")))
    assert "empty" in refusal(lambda: train_tokenizer(kind, write(tmp_path / "mark.txt", "\ufeff")))
    assert "absent.txt" in refusal(lambda: train_tokenizer(kind, tmp_path / "absent.txt"))
    assert str(tmp_path) in refusal(lambda: train_tokenizer(kind, tmp_path))
    assert "at least one file" in refusal(lambda: train_tokenizer(kind, []))
