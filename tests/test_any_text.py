"""Any amount of text: files, folders, patterns, rows of JSON, packed or not; tokens made in parts; documents; pairs.

B batch, T positions, N tokens of a text, V vocabulary.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plainformer.checkpoint import load, newest, tokenizer_of
from plainformer.checkpoint.runs import optimizer_of
from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.spec import Spec
from plainformer.text import (
    Batches,
    TokenFile,
    Tokenizer,
    encoding,
    preparing,
    split,
    token_bytes,
    train_tokenizer,
    write_tokens,
)
from plainformer.text.encoding import encoded, end_id, with_end
from plainformer.text.gathering import gathered
from plainformer.text.pairs import PairBatches, Pairs, open_pairs, pair_passes
from plainformer.text.preparing import is_prepared, prepare
from plainformer.text.reading import Texts, read_text
from plainformer.training import evaluate
from runs import SHORT, metrics, some_text, write_text

KINDS = ("characters", "bytes", "bpe:300")
DOCUMENTS = [line for line in some_text(400, seed=3).splitlines() if line]
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents in every dress: plain, packed, rows, rows packed."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "deep").mkdir()
    rows = "".join(json.dumps({"text": text, "said": text.upper()}) + "\n" for text in DOCUMENTS)
    (folder / "a.txt").write_text("\n".join(DOCUMENTS[:20]), encoding="utf-8")
    with gzip.open(folder / "deep" / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(DOCUMENTS[20:]))
    (folder / "c.jsonl").write_text(rows + "\n", encoding="utf-8")
    with gzip.open(folder / "d.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(rows.rstrip("\n"))
    (folder / ".hidden.txt").write_text("not read", encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


def tokens_of(texts: Texts, tokenizer: Tokenizer, out: Path, workers: int = 1) -> np.ndarray:
    return np.array(write_tokens(texts, tokenizer, out, workers=workers).tokens)


# --- what TEXT stands for ---------------------------------------------------------------------------------------------


def test_a_folder_a_pattern_and_files_are_gathered_in_an_order_that_is_said(folder: Path) -> None:
    names = ["a.txt", "c.jsonl", "d.jsonl.gz", "deep/b.txt.gz"]
    assert [str(path.relative_to(folder)) for path in gathered([folder]).files] == names
    assert [path.name for path in gathered([folder / "*.txt"]).files] == ["a.txt"]
    assert [path.name for path in gathered([folder / "**" / "*.gz"]).files] == ["d.jsonl.gz", "b.txt.gz"]
    assert [path.name for path in gathered([folder / "c.jsonl", folder / "a.txt"]).files] == ["c.jsonl", "a.txt"]
    assert gathered([folder / "a.txt"]).documents == "joined"
    assert gathered([folder]).documents == "ended"
    assert gathered([folder], "said", "apart") == Texts(gathered([folder]).files, "said", "apart")


def test_what_a_run_keeps_is_no_text_of_the_folder_that_it_lies_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    for word in (".", str(tmp_path), "**/*.txt", f"{tmp_path}/**/*.txt"):
        run = tmp_path / "deep" / f"run{len(word)}"
        for more in ([], ["--resume"]):
            assert main(["train", word, "--out", str(run), *SHORT, *more]) == 0
        assert [path.resolve() for path in gathered([word]).files] == [text]
    for asked in (run / "sample.txt", run / "*.txt"):  # by its own name it can be asked for
        assert gathered([asked]).files == (run / "sample.txt",)


def test_rows_and_packed_files_are_read_as_what_is_in_them(folder: Path) -> None:
    plain = "".join(read_text(folder / "a.txt")) + "\n" + "".join(read_text(folder / "deep" / "b.txt.gz"))
    assert plain.splitlines() == DOCUMENTS
    for name in ("c.jsonl", "d.jsonl.gz"):
        assert "".join(read_text(folder / name)) == "".join(DOCUMENTS)
        assert "".join(read_text(gathered([folder / name], "said"))) == "".join(DOCUMENTS).upper()


def test_zstd_is_read_where_its_package_is_and_refused_by_name_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(PlainformerError, match=r"needs the zstandard package; pip install 'plainformer\[zstd\]'"):
            list(read_text(path))
    zstandard = pytest.importorskip("zstandard", reason="the extra zstd is not installed")
    path.write_bytes(zstandard.compress(b"the cat" * 9))
    assert "".join(read_text(path)) == "the cat" * 9
    packed = zstandard.compress(b"the cat" * 9)
    path.write_bytes(packed + packed)
    assert "".join(read_text(path)) == "the cat" * 18
    for damaged in (packed[:-3], b"\x28\xb5\x2f\xfdjunk", b"the cat"):
        path.write_bytes(damaged)
        with pytest.raises(PlainformerError, match="cannot be unpacked"):
            list(read_text(path))


def test_what_is_no_text_is_refused_by_file_and_line(tmp_path: Path, refused: Refused) -> None:
    out, path = tmp_path / "out", tmp_path / "a.jsonl"
    for content, said in (
        ('{"text": "a"}\n{', "line 2"),
        ('{"text": 3}', "must be a text"),
        ('{"body": "a"}', "its fields: body"),
        ('["a"]', "is not an object"),
        ('{"text": "\xff"}'.encode("latin-1"), "line 1"),
        ('{"text": "a"}\n{"text": "a \\ud83d b"}', "line 2: text = '\\ud83d': character 2 (U+D83D) has no UTF-8 form"),
    ):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert said in refused("tokenize", path, "--out", out)
        assert not out.exists()
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"the cat" * 99)[:-9])
    assert "cannot be unpacked" in refused("tokenize", tmp_path / "b.txt.gz", "--out", out)
    (tmp_path / "empty").mkdir()
    assert "no text in this folder" in refused("tokenize", tmp_path / "empty", "--out", out)
    assert "no file has such a name" in refused("tokenize", tmp_path / "*.tex", "--out", out)
    assert "there is none" in refused("tokenize", write_text(tmp_path), "--field", "said", "--out", out)
    assert "cannot go with --from" in refused("tokenize", path, "--from", "x", "--tokenizer", "bytes", "--out", out)


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_ends_with_a_token_that_no_text_can_say(folder: Path, tmp_path: Path, kind: str) -> None:
    texts = gathered([folder / "c.jsonl"])
    tokenizer = with_end(train_tokenizer(kind, texts))
    end = end_id(tokenizer)
    assert end == tokenizer.n_tokens - 1
    assert with_end(tokenizer) is tokenizer
    assert len(token_bytes(tokenizer)) == tokenizer.n_tokens
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path).sha256 == tokenizer.sha256
    assert Tokenizer.load(tmp_path).kind == tokenizer.kind
    found = tokens_of(texts, tokenizer, tmp_path / "tokens")
    ends = np.flatnonzero(found == end)
    starts = [0, *(ends + 1).tolist()]
    assert [tokenizer.decode(found[a:b]) for a, b in zip(starts[:-1], ends, strict=True)] == DOCUMENTS
    assert int(ends[-1]) == len(found) - 1
    if kind != "characters":
        assert end not in tokenizer.encode("<|endoftext|>")


def test_documents_that_nothing_can_end_are_refused_whoever_reads_them(
    folder: Path, tmp_path: Path, refused: Refused
) -> None:
    rows, plain, made = folder / "c.jsonl", tmp_path / "plain", tmp_path / "made"
    assert main(["train", str(rows), "--documents", "joined", "--out", str(plain), *SHORT]) == 0
    assert end_id(tokenizer_of(plain)) is None
    for more in ([], ["--documents", "ended"], ["--documents", "apart"]):  # the first is the way of any .jsonl
        for command in ("tokenize", "train"):
            words = (command, rows, "--from", plain, "--out", made, *more)
            assert "has no token that ends a document; use --documents joined" in refused(*words)
            assert not made.exists()
    assert main(["tokenize", str(rows), "--from", str(plain), "--documents", "joined", "--out", str(made)]) == 0
    said = (made / "tokens.json").read_text(encoding="utf-8")
    (made / "tokens.json").write_text(said.replace('"joined"', '"apart"'), encoding="utf-8")
    assert "tokenize it again with --documents joined" in refused("train", made, "--out", tmp_path / "run", *SHORT)


def test_apart_nothing_is_learned_from_the_document_before(folder: Path, tmp_path: Path) -> None:
    texts = gathered([folder / "c.jsonl"], documents="apart")
    tokenizer = with_end(train_tokenizer("characters", texts))
    end, found = end_id(tokenizer), tokens_of(texts, tokenizer, tmp_path / "tokens")
    plain_BT, apart_BT = (Batches(found, 40, 8, 0, of).at(0)[1] for of in (None, end))
    x_BT, _ = Batches(found, 40, 8, 0).at(0)
    assert (x_BT == end).any()
    assert (apart_BT[x_BT == end] == -1).all()
    assert (apart_BT == plain_BT)[x_BT != end].all()
    model = Transformer(load_spec(tokenizer), seed=1)
    whole, cut = (evaluate(model, found, token_bytes(tokenizer), 40, end=of) for of in (None, end))
    assert whole is not None
    assert cut is not None
    n_ends = int((found[:-1] == end).sum())
    assert cut.targets == whole.targets - n_ends


def load_spec(tokenizer: Tokenizer) -> Spec:
    return presets.trainable("tiny", vocab_size=tokenizer.n_tokens, d_model=16, n_layers=1, n_heads=2)


# --- many processes, parts, kills -------------------------------------------------------------------------------------


@pytest.mark.parametrize("documents", ["joined", "ended"])
@pytest.mark.parametrize("kind", KINDS)
def test_units_are_the_text_whole_and_can_be_passed_over(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, documents: str
) -> None:
    monkeypatch.setattr(encoding, "UNIT_CHARACTERS", 500)
    texts = gathered([folder], documents=documents)  # type: ignore[arg-type]
    tokenizer = with_end(train_tokenizer(kind, texts))
    alone = [ids_N for ids_N, _ in encoded(texts, tokenizer, workers=1)]
    assert np.array_equal(np.concatenate(alone), tokens_of(texts, tokenizer, tmp_path / "tokens"))
    for skip in (1, 2):
        rest = [ids_N for ids_N, _ in encoded(texts, tokenizer, workers=1, skip=skip)]
        assert [a.tolist() for a in rest] == [a.tolist() for a in alone[skip:]]


@pytest.mark.parametrize("kind", KINDS)
def test_small_files_and_rows_together_make_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(encoding, "UNIT_CHARACTERS", 40_000)
    long = some_text(30_000, seed=5)
    for folder in ("files", "rows"):
        (tmp_path / folder).mkdir()
    for i in range(300):
        (tmp_path / "files" / f"{i:03}.txt").write_text(long[i * 300 : i * 300 + 300], encoding="utf-8")
    rows = "".join(json.dumps({"text": long[i * 300 : i * 300 + 300]}) + "\n" for i in range(300))
    (tmp_path / "rows" / "a.jsonl").write_text(rows, encoding="utf-8")
    tokenizer = with_end(train_tokenizer(kind, gathered([tmp_path / "files"])))
    for folder in ("files", "rows"):
        for documents in ("joined", "ended"):
            texts = gathered([tmp_path / folder], documents=documents)  # type: ignore[arg-type]
            assert len(list(encoding.units(texts, tokenizer))) in (3, 4)  # 90,000 characters
            found = tokens_of(texts, tokenizer, tmp_path / "tokens")
            assert tokenizer.decode(found) == long[:90_000]
            if documents == "joined":
                assert np.array_equal(found, tokenizer.encode(long[:90_000]))
    if kind == "characters":
        (tmp_path / "files" / "200.txt").write_text("the cat Sat", encoding="utf-8")
        with pytest.raises(PlainformerError, match=r"200\.txt = 'S': U\+0053 at character 8 is not in the vocabulary"):
            tokens_of(gathered([tmp_path / "files"]), tokenizer, tmp_path / "tokens")


def test_workers_write_what_one_process_writes_and_hand_on_what_they_refuse(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "UNIT_CHARACTERS", 500)
    texts = gathered([folder])
    tokenizer = with_end(train_tokenizer("bpe:300", texts))
    one, two = (tokens_of(texts, tokenizer, tmp_path / str(n), workers=n) for n in (1, 2))
    assert np.array_equal(one, two)
    narrow = with_end(train_tokenizer("characters", folder / "a.txt"))
    (tmp_path / "b.txt").write_text("the Cat", encoding="utf-8")
    with pytest.raises(PlainformerError, match=r"b\.txt.*not in the vocabulary"):
        tokens_of(gathered([tmp_path / "b.txt"]), narrow, tmp_path / "out", workers=2)


def interrupted_at(monkeypatch: pytest.MonkeyPatch, n_parts: int) -> None:
    """Stop when so many parts are written."""
    real = preparing.written_beside

    def written(path: Path):  # type: ignore[no-untyped-def]
        if path.name == preparing.name_of(n_parts):
            raise KeyboardInterrupt
        return real(path)

    monkeypatch.setattr(preparing, "written_beside", written)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_were_interrupted_go_on_and_are_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(encoding, "UNIT_CHARACTERS", 300)
    monkeypatch.setattr(preparing, "UNITS_A_PART", 2)
    texts, said = gathered([folder]), list[str]()
    whole, _ = prepare(texts, tmp_path / "whole", kind, said.append)
    with monkeypatch.context() as patch:
        interrupted_at(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            prepare(texts, tmp_path / "out", kind, said.append)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".parts"]
    encodes = list[object]()
    real = encoding.encode_unit
    monkeypatch.setattr(encoding, "encode_unit", lambda *given: encodes.append(given) or real(*given))
    made, new = prepare(texts, tmp_path / "out", kind, said.append)
    assert new
    assert any("going on after 2 parts" in words for words in said)
    assert np.array_equal(made.tokens, whole.tokens)
    assert made.n_bytes == whole.n_bytes
    n_units = len(list(encoding.units(texts, Tokenizer.load(tmp_path / "out"))))
    assert len(encodes) == n_units - 4  # what was there is not encoded again
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["tokenizer.json", "tokens.bin", "tokens.json"]
    assert prepare(texts, tmp_path / "out", kind, said.append)[1] is False
    with pytest.raises(PlainformerError, match="holds the tokens of another text"):
        prepare(gathered([folder / "a.txt"]), tmp_path / "out", kind, said.append)


def test_parts_of_a_text_that_has_changed_are_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "UNITS_A_PART", 1)
    text = write_text(tmp_path)
    with monkeypatch.context() as patch:
        interrupted_at(patch, 0)
        with pytest.raises(KeyboardInterrupt):
            prepare(gathered([text]), tmp_path / "out", "characters", print)
    text.write_text("another", encoding="utf-8")
    with pytest.raises(PlainformerError, match="files have changed since"):
        prepare(gathered([text]), tmp_path / "out", "characters", print)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear", encoding="utf-8")
    with pytest.raises(PlainformerError, match="holds something else"):
        prepare(gathered([text]), tmp_path / "mine", "characters", print)


def test_parts_that_a_killed_process_left_beside_whole_tokens_go(tmp_path: Path) -> None:
    command = ["tokenize", str(write_text(tmp_path)), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    (tmp_path / "out" / ".parts").mkdir()
    (tmp_path / "out" / ".parts" / preparing.name_of(3)).write_bytes(bytes(99))
    before = (tmp_path / "out" / "tokens.bin").read_bytes()
    assert main(command) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["tokenizer.json", "tokens.bin", "tokens.json"]
    assert (tmp_path / "out" / "tokens.bin").read_bytes() == before


@pytest.mark.parametrize("moment", ["tokenizer_for", "fill"])
def test_two_do_not_make_the_same_tokens_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused, moment: str
) -> None:
    out, command = tmp_path / "out", ("tokenize", write_text(tmp_path), "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        real = getattr(preparing, moment)

        def busy(*given: Any) -> Any:
            patch.undo()
            assert "another process is at work in it" in refused(*command)
            return real(*given)

        patch.setattr(preparing, moment, busy)
        assert main([str(word) for word in command]) == 0
    assert is_prepared(out)
    assert not (out / ".parts").exists()


def test_a_disk_that_fills_is_not_taken_for_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(preparing, "fill", full)
    with pytest.raises(OSError, match="No space left"):
        prepare(Texts((write_text(tmp_path),)), tmp_path / "out", "characters", print)


def test_a_tokenizer_that_cannot_be_made_leaves_no_folder(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "half.jsonl").write_text('{"text": "a \\ud83d b"}\n', encoding="utf-8")
    assert "half.jsonl" in refused("tokenize", tmp_path / "half.jsonl", "--out", tmp_path / "deep" / "out")
    assert not (tmp_path / "deep").exists()
    (tmp_path / "mine").mkdir()
    assert "half.jsonl" in refused("tokenize", tmp_path / "half.jsonl", "--out", tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_run_of_tokens_is_the_run_of_their_text(tmp_path: Path, refused: Refused) -> None:
    text = write_text(tmp_path)
    assert main(["tokenize", str(text), "--out", str(tmp_path / "tokens")]) == 0
    for name, source in (("a", text), ("b", tmp_path / "tokens")):
        assert main(["train", str(source), "--out", str(tmp_path / name), *SHORT]) == 0
    a, b = (dict(load(tmp_path / name).named_parameters()) for name in "ab")
    assert all(torch.equal(w, b[name]) for name, w in a.items())
    (tmp_path / "tokens" / "tokens.bin").rename(tmp_path / "moved")  # the run keeps its own
    assert main(["train", "--out", str(tmp_path / "b"), "--resume"]) == 0
    (tmp_path / "moved").rename(tmp_path / "tokens" / "tokens.bin")
    assert "leave it out" in refused(
        "train", tmp_path / "tokens", "--out", tmp_path / "c", *SHORT, "--tokenizer", "bytes"
    )


SCRIPT = """
import resource, sys, threading, time
from pathlib import Path
peak = 0
def watch():
    global peak
    while True:
        held = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
        peak = max(peak, held)
        time.sleep(0.005)
from plainformer.text import train_tokenizer, write_tokens
from plainformer.cli import main
import torch, plainformer.training
idle = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
threading.Thread(target=watch, daemon=True).start()
text, out, kind = sys.argv[1:4]
words = ["--steps", "5", "--batch-size", "4", "--quiet", "--preset", "tiny", "--context", "32", "--validation", "0.001"]
assert main(["train", text, "--out", out, "--tokenizer", kind, "--eval-every", "5", *words]) == 0
print("PEAK", peak - idle)
"""


def grown(folder: Path, megabytes: int, kind: str) -> float:
    """Bytes of memory above the idle program for each byte of text."""
    text, block = folder / "big.txt", some_text(20_000, seed=7).encode()
    with text.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(block)):
            file.write(block)
    words = [sys.executable, "-c", SCRIPT, str(text), str(folder / f"run-{kind.replace(':', '-')}"), kind]
    ran = subprocess.run(words, capture_output=True, text=True, env=os.environ, check=True)
    found = next(line for line in ran.stdout.splitlines() if line.startswith("PEAK"))
    print(f"{kind}: {int(found.split()[1]) / text.stat().st_size:.2f} bytes of memory for each of the text")
    return int(found.split()[1]) / text.stat().st_size


linux = pytest.mark.skipif(sys.platform != "linux", reason="peak memory of a process is read from /proc")


@linux
@pytest.mark.parametrize("kind, most", [("characters", 12.0)])
def test_f30_a_text_of_30_megabytes_is_trained_on_in_bounded_memory(tmp_path: Path, kind: str, most: float) -> None:
    """The small form: what does not grow with the text, some 200 MB of torch at work, is most of it here."""
    assert grown(tmp_path, 30, kind) < most


@pytest.mark.proof
@linux
@pytest.mark.parametrize("kind, most", [("characters", 3.0), ("bpe:1000", 4.0)])
def test_f30_a_text_of_300_megabytes_is_trained_on_in_bounded_memory(tmp_path: Path, kind: str, most: float) -> None:
    assert grown(tmp_path, 300, kind) < most


@pytest.mark.proof
@linux
def test_a_tokenize_that_is_killed_goes_on(tmp_path: Path) -> None:
    """kill -9 while the second part and those after it are written, thrice."""
    text, block = tmp_path / "big.txt", some_text(20_000, seed=7)
    text.write_text(block * 700, encoding="utf-8")
    command = [sys.executable, "-m", "plainformer", "tokenize", str(text), "--tokenizer", "bpe:300", "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    out = tmp_path / "out"
    for n_parts in (1, 2, 3):
        with subprocess.Popen([*command, str(out)], stderr=subprocess.PIPE, start_new_session=True) as job:
            while job.poll() is None and not (out / ".parts" / preparing.name_of(n_parts - 1)).is_file():
                pass
            os.killpg(job.pid, signal.SIGKILL)
    subprocess.run([*command, str(out)], check=True, capture_output=True)
    a, b = (TokenFile.open(folder / "tokens.bin").tokens for folder in (tmp_path / "whole", out))
    assert np.array_equal(a, b)


# --- prompts and completions ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    rows = ({"prompt": text.split()[0] + " ", "completion": text.partition(" ")[2]} for text in DOCUMENTS)
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_only_completions_are_targets_each_pair_by_itself(pairs: Path, tmp_path: Path) -> None:
    assert main(["train", str(pairs), "--out", str(tmp_path / "run"), *SHORT, "--context", "64"]) == 0
    tokenizer = tokenizer_of(tmp_path / "run")
    end, file = end_id(tokenizer), TokenFile.open(tmp_path / "run" / "tokens.bin", tokenizer)
    found = open_pairs(np.array(file.tokens), tmp_path / "run" / "pairs.bin")
    assert len(found) == len(DOCUMENTS)
    x_BT, y_BT = PairBatches(found, 64, len(found), 0).at(0)
    said = set()
    for x_T, y_T in zip(x_BT, y_BT, strict=True):
        n = int(np.flatnonzero(y_T >= 0)[-1]) + 1
        text = tokenizer.decode(x_T[:n])
        said.add(text)
        real = y_T[y_T >= 0]
        assert tokenizer.decode(real) == text.partition(" ")[2]
        assert real[-1] == end
        assert np.array_equal(y_T[: n - 1][y_T[: n - 1] >= 0], x_T[1:n][y_T[: n - 1] >= 0])
    assert said == set(DOCUMENTS)  # each once an epoch
    row = metrics(tmp_path / "run")[-1]
    assert row["val_loss"] > 0


def test_a_pair_longer_than_the_context_loses_its_prompt_s_beginning_first() -> None:
    pairs = Pairs(np.arange(10, 30), np.array([[0, 6, 12], [12, 13, 20]]))
    x_T, y_T = pairs.row(0, 8)
    assert x_T.tolist() == [13, 14, 15, 16, 17, 18, 19, 20]
    assert y_T.tolist() == [-1, -1, 16, 17, 18, 19, 20, 21]
    x_T, y_T = pairs.row(1, 4)
    assert x_T.tolist() == [22, 23, 24, 25]
    assert y_T.tolist() == [23, 24, 25, 26]
    x_T, y_T = pairs.row(1, 10)
    assert x_T.tolist() == [22, 23, 24, 25, 26, 27, 28, 0, 0, 0]
    assert y_T.tolist() == [23, 24, 25, 26, 27, 28, 29, -1, -1, -1]
    blocks = list(pair_passes(pairs, 8, 1))
    assert sum(int((y_BT >= 0).sum()) for _, y_BT, _ in blocks) == 6 + 7


def test_pairs_that_cannot_be_are_refused(pairs: Path, tmp_path: Path, refused: Refused) -> None:
    assert "are no one text" in refused("tokenize", pairs, "--out", tmp_path / "out")
    text = write_text(tmp_path)
    assert "cannot go with rows" in refused("train", pairs, text, "--out", tmp_path / "run", *SHORT)
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a", "completion": ""}\n', encoding="utf-8")
    assert "must not be empty" in refused("train", path, "--out", tmp_path / "run", *SHORT)
    path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n', encoding="utf-8")
    assert "line 2" in refused("train", path, "--out", tmp_path / "run", *SHORT)
    path.write_text('{"prompt": "a", "completion": "b \\udc00"}\n', encoding="utf-8")
    assert "line 1: completion" in refused("train", path, "--out", tmp_path / "run", *SHORT)


# --- a model to begin from --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(pairs: Path) -> Path:
    run = pairs.parent / "base"
    assert main(["train", str(pairs), "--out", str(run), *SHORT, "--context", "64"]) == 0
    return run


def test_adapters_alone_are_trained_and_kept_by_the_optimiser(base: Path, pairs: Path, tmp_path: Path) -> None:
    words = ("--from", base, "--lora", 3, "--targets", "q,v,up", "--steps", 10, "--quiet")
    assert main([str(word) for word in ("train", pairs, "--out", tmp_path / "run", *words)]) == 0
    before, after = (dict(load(place).named_parameters()) for place in (base, tmp_path / "run"))
    adapters = {name for name in after if name.endswith(("lora_a", "lora_b"))}
    assert adapters == {
        f"decoder.layers.0.{part}.lora_{letter}"
        for part in ("attention.q", "attention.v", "feed_forward.up")
        for letter in "ab"
    }
    assert after.keys() - before.keys() == adapters
    assert all(torch.equal(w, after[name]) for name, w in before.items())
    assert all(bool(after[name].any()) for name in adapters)
    kept = {name.partition(".")[2] for name, _ in optimizer_of(newest(tmp_path / "run"))}
    assert kept == adapters
    rows = metrics(tmp_path / "run")
    assert rows[-1]["val_loss"] < metrics(base)[-1]["val_loss"]
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "hub")]) == 0
    tokens_BT = torch.arange(6)[None]
    merged, tuned = load(tmp_path / "hub"), load(tmp_path / "run")
    torch.testing.assert_close(merged(tokens_BT), tuned(tokens_BT), rtol=0, atol=1e-5)


@pytest.mark.parametrize("of", ["run", "step", "hub"])
def test_a_run_begins_from_a_model_with_its_shape_tokenizer_and_weights(
    base: Path, pairs: Path, tmp_path: Path, of: str
) -> None:
    source = {"run": base, "step": base / "checkpoints" / "step-12", "hub": tmp_path / "hub"}[of]
    if of == "hub":
        assert main(["export", str(base), str(source)]) == 0
    words = ("train", pairs, "--from", source, "--out", tmp_path / "run", "--steps", 2, "--quiet", "--context", 32)
    assert main([str(word) for word in words]) == 0
    assert tokenizer_of(tmp_path / "run").sha256 == tokenizer_of(base).sha256
    first, begun = (
        dict(load(place).named_parameters()) for place in (base, tmp_path / "run" / "checkpoints" / "step-1")
    )
    assert {name: w.shape for name, w in first.items()} == {name: w.shape for name, w in begun.items()}
    assert max(float((w - begun[name]).detach().abs().max()) for name, w in first.items()) < 1e-3  # one small step away
    assert main([str(word) for word in (*words, "--resume")]) == 0


def test_what_ends_a_text_and_writes_a_chat_goes_with_a_run_to_transformers(
    base: Path, pairs: Path, tmp_path: Path
) -> None:
    """Of a run from nothing, and of one that was tuned on, from tokens made before too."""
    import transformers

    hub, end = tmp_path / "hub", end_id(tokenizer_of(base))
    assert main(["export", str(base), str(hub)]) == 0
    assert transformers.AutoModelForCausalLM.from_pretrained(hub).generation_config.eos_token_id == [end]
    assert transformers.AutoTokenizer.from_pretrained(hub).eos_token == "<|endoftext|>"

    said = json.loads((hub / "tokenizer_config.json").read_text(encoding="utf-8"))
    content = json.loads((hub / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"].append(
        content["added_tokens"][0] | {"content": "<turn>", "id": content["model"]["vocab"]["a"]}
    )
    del content["model"]["vocab"]["a"]
    (hub / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    (hub / "tokenizer_config.json").write_text(json.dumps(said | {"eos_token": "<turn>"}), encoding="utf-8")
    (hub / "chat_template.jinja").write_text("{{ messages[0]['content'] }}{{ eos_token }}", encoding="utf-8")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the nuts run"}\n' * 99, encoding="utf-8")
    tokens, short = tmp_path / "tokens", ("--steps", "1", "--quiet", "--context", "16")
    assert main(["tokenize", str(rows), "--from", str(hub), "--out", str(tokens)]) == 0
    for name, text in (("rows", rows), ("tokens", tokens)):
        run, out = tmp_path / f"run-{name}", tmp_path / f"hub-{name}"
        assert main(["train", str(text), "--from", str(hub), "--out", str(run), *short]) == 0
        mine, theirs = tokenizer_of(run), tokenizer_of(hub)
        assert (mine.named, mine.chat_template, mine.sha256) == (theirs.named, theirs.chat_template, theirs.sha256)
        assert mine.chat([{"content": "the"}])[-1] == mine.control["<turn>"]
        assert main(["export", str(run), str(out)]) == 0
        stranger = transformers.AutoTokenizer.from_pretrained(out)
        assert stranger.eos_token == "<turn>"
        assert stranger.chat_template == theirs.chat_template
        ends = json.loads((out / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
        assert ends == [mine.control["<turn>"], end]


def test_what_cannot_be_begun_from_is_refused(base: Path, pairs: Path, tmp_path: Path, refused: Refused) -> None:
    def told(*words: object) -> str:
        return refused("train", pairs, "--out", tmp_path / "run", *words)

    assert "say which: --from MODEL" in told("--lora", 2)
    assert "is the model's own" in told("--from", base, "--d-model", 8)
    assert "is the model's own" in told("--from", base, "--tokenizer", "bytes")
    assert "give their rank" in told("--from", base, "--targets", "q")
    assert "rank of at least 1" in told("--from", base, "--lora", 0)
    assert "takes an adapter" in told("--from", base, "--lora", 2, "--targets", "q,nose")
    assert "several projections" in told("--from", base, "--lora", 2, "--targets", "gate")
    assert "64 positions" in told("--from", base, "--context", 65)
    assert "no such folder" in told("--from", tmp_path / "nowhere")
    other = tmp_path / "other.jsonl"
    other.write_text('{"prompt": "X", "completion": "Y"}\n' * 9, encoding="utf-8")
    assert "not in the vocabulary" in refused("train", other, "--from", base, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_eval_scores_completions_of_pairs_and_rows_of_text(
    base: Path, pairs: Path, folder: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["eval", str(base), str(pairs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tokenizer = tokenizer_of(base)
    n_targets = sum(len(tokenizer.encode(text.partition(" ")[2])) + 1 for text in DOCUMENTS)
    assert found["targets"] == n_targets
    assert main(["eval", str(base), str(pairs)]) == 0
    assert "completions alone" in capsys.readouterr().out
    counts = {}
    for documents in ("joined", "ended", "apart"):
        assert main(["eval", str(base), str(folder / "c.jsonl"), "--documents", documents, "--json"]) == 0
        counts[documents] = json.loads(capsys.readouterr().out)["targets"]
    n_all = sum(map(len, DOCUMENTS))
    assert counts == {
        "joined": n_all - 1,
        "ended": n_all + len(DOCUMENTS) - 1,
        "apart": n_all,  # without the first of each document
    }
    assert "each by itself" in refused("eval", base, pairs, "--stride", 4)
    kept = base.parent / "validation.jsonl"  # the last tenth of the pairs
    kept.write_text("".join(pairs.read_text().splitlines(keepends=True)[-len(DOCUMENTS) // 10 :]), encoding="utf-8")
    assert main(["eval", str(base), str(kept), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(metrics(base)[-1]["val_loss"], abs=1e-6)


def test_a_run_of_documents_apart_validates_them_apart(folder: Path, tmp_path: Path) -> None:
    losses = {}
    for documents in ("ended", "apart"):
        run = tmp_path / documents
        words = ("train", folder / "c.jsonl", "--out", run, *SHORT, "--lr", 1e-9, "--documents", documents)
        assert main([str(word) for word in words]) == 0
        tokens = TokenFile.open(run / "tokens.bin")
        _, validation = split(tokens.n_tokens, 0.1)
        end = end_id(tokenizer_of(run)) if documents == "apart" else None
        length_V = token_bytes(tokenizer_of(run))
        found = evaluate(load(run), tokens.slice(validation), length_V, 16, end=end)
        assert found is not None
        losses[documents] = metrics(run)[-1]["val_loss"]
        assert losses[documents] == pytest.approx(found.loss, abs=1e-6)
    assert losses["ended"] != losses["apart"]


def test_the_order_of_pairs_is_a_pure_function_of_seed_and_step() -> None:
    places = np.array([[i * 4, i * 4 + 2, i * 4 + 4] for i in range(23)])
    pairs = Pairs(np.arange(100), places)
    seen = [PairBatches(pairs, 4, 5, 1).at(step)[0][:, 0].tolist() for step in range(23)]
    starts = [start for row in seen for start in row]
    assert [sorted(starts[i : i + 23]) for i in range(0, 115, 23)] == [list(range(0, 92, 4))] * 5
    shuffled = random.Random(0).sample(range(23), 23)
    assert all(PairBatches(pairs, 4, 5, 1).at(step)[0][:, 0].tolist() == seen[step] for step in shuffled)
