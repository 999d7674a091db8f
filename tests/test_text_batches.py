"""Laws of token files, the split, batches and evaluation blocks."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plainformer.faults import PlainformerError
from plainformer.text import (
    Batches,
    TokenFile,
    check_lengths,
    eval_blocks,
    split,
    text_bytes,
    token_bytes,
    train_tokenizer,
    write_tokens,
)

KINDS = ("characters", "bytes", "bpe:300")


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(PlainformerError) as caught:
        call()
    return str(caught.value)


def python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, **options)  # type: ignore[call-overload, no-any-return]


# --- token files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_file_holds_the_ids_and_the_bytes_of_the_files_joined(tmp_path: Path, kind: str) -> None:
    texts = ["Fr\u00fch am\r\nMorgen " * 9000, "\u6f22\u5b57\u2028 the end \r" * 9000, "", "x"]
    paths = [write(tmp_path / f"{place}.txt", text) for place, text in enumerate(texts)]
    tokenizer = train_tokenizer(kind, paths)
    done: list[tuple[int, int]] = []
    made = write_tokens(paths, tokenizer, tmp_path / "tokens", lambda *seen: done.append(seen))

    whole = "".join(texts)
    assert made.tokens.tolist() == tokenizer.encode(whole).tolist()
    assert (made.n_tokens, made.n_bytes) == (len(made.tokens), len(whole.encode()))
    assert made.dtype == (np.uint16 if kind == "bpe:300" else np.uint8)
    assert made == TokenFile.open(tmp_path / "tokens", tokenizer)
    assert made.path.stat().st_size == 64 + made.n_tokens * made.dtype.itemsize
    assert done[-1] == (made.n_bytes, made.n_bytes)

    train, validation = split(made.n_tokens)
    counted = [text_bytes(made.slice(part), token_bytes(tokenizer)) for part in (train, validation)]
    assert sum(counted) == made.n_bytes
    assert counted[1] == len(tokenizer.decode_bytes(made.slice(validation)))


@pytest.mark.parametrize(
    "n_characters, dtype", [(256, np.uint8), (257, np.uint16), (65536, np.uint16), (65537, np.uint32)]
)
def test_ids_take_the_fewest_bytes_that_hold_the_vocabulary(tmp_path: Path, n_characters: int, dtype: type) -> None:
    letters = "".join(chr(point) for point in range(1, n_characters + 2050) if not 0xD800 <= point < 0xE000)
    path = write(tmp_path / "a.txt", letters[:n_characters])
    made = write_tokens(path, train_tokenizer("characters", path), tmp_path / "tokens")
    assert made.dtype == dtype
    assert made.tokens.tolist() == list(range(n_characters))


def test_a_dropped_mark_is_not_counted_and_the_bytes_kind_keeps_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbf\xc3\xa9\r\n")
    for kind, n_bytes, n_notices in (("characters", 4, 1), ("bpe:300", 4, 1), ("bytes", 7, 0)):
        notices: list[str] = []
        made = write_tokens(path, train_tokenizer(kind, path), tmp_path / "tokens", notice=notices.append)
        assert (made.n_bytes, len(notices)) == (n_bytes, n_notices)


def test_the_bytes_kind_keeps_every_byte_of_any_file(tmp_path: Path) -> None:
    raw = bytes(range(256)) * 3
    made = write_tokens(write(tmp_path / "a", raw), train_tokenizer("bytes", tmp_path / "a"), tmp_path / "tokens")
    assert made.tokens.tobytes() == raw


def test_an_unknown_character_in_a_file_is_named_with_its_place(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("characters", write(tmp_path / "a.txt", "ab"))
    path = write(tmp_path / "b.txt", "ab" * 1_000_000 + "x")
    said = refusal(lambda: write_tokens([tmp_path / "a.txt", path], tokenizer, tmp_path / "tokens"))
    assert said.startswith(f"{path} = 'x': U+0078 at character 2000000 ")
    assert not list(tmp_path.glob("tokens*"))


def stop(*_: int) -> None:
    raise KeyboardInterrupt


def test_writing_that_fails_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("bytes", [tmp_path])
    good = write(tmp_path / "good.txt", "text")
    write_tokens(good, tokenizer, tmp_path / "kept")
    for out in ("kept", "new"):
        with pytest.raises(KeyboardInterrupt):
            write_tokens(good, tokenizer, tmp_path / out, progress=stop)
        assert "empty" in refusal(
            lambda out=out: write_tokens(  # type: ignore[misc]
                write(tmp_path / "empty.txt", ""), tokenizer, tmp_path / out
            )
        )
    bad = write(tmp_path / "bad.txt", b"a" * 3_000_000 + b"\xff")
    characters = train_tokenizer("characters", write(tmp_path / "a.txt", "a"))
    assert "offset 3000000" in refusal(lambda: write_tokens(bad, characters, tmp_path / "new"))
    assert "absent" in refusal(lambda: write_tokens(good, tokenizer, tmp_path / "absent" / "new"))
    assert refusal(lambda: write_tokens(tmp_path / "no.txt", tokenizer, tmp_path / "new")).endswith(
        "no.txt': there is no such file or folder"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"good.txt", "bad.txt", "empty.txt", "a.txt", "kept"}
    assert TokenFile.open(tmp_path / "kept").n_tokens == 4


WRITE = """
import sys
from plainformer.text import train_tokenizer, write_tokens
from plainformer.faults import PlainformerError
def kill(done, total):
    if sys.argv[3] == "kill": import os; os.kill(os.getpid(), 9)
try:
    write_tokens(sys.argv[1], train_tokenizer("bytes", sys.argv[1]), sys.argv[2], kill)
except PlainformerError as error:
    print(error)
"""


def test_a_full_disk_is_a_refusal_and_leaves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a" * 3_000_000)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    said = python(WRITE, path, tmp_path / "tokens", "", preexec_fn=limit).stdout.decode()
    assert said.startswith(f"{tmp_path / 'tokens'} = 'File too large'")
    assert [found.name for found in tmp_path.iterdir()] == ["a.txt"]


def test_a_killed_write_leaves_no_token_file_and_the_next_takes_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a" * 3_000_000)
    assert python(WRITE, path, tmp_path / "tokens", "kill").returncode == -signal.SIGKILL
    assert not (tmp_path / "tokens").exists()
    assert python(WRITE, path, tmp_path / "tokens", "").returncode == 0
    assert TokenFile.open(tmp_path / "tokens").n_tokens == 3_000_000
    assert {found.name for found in tmp_path.iterdir()} == {"a.txt", "tokens"}


def test_a_token_file_that_is_cut_or_none_or_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "some text")
    characters, raw = (train_tokenizer(kind, path) for kind in ("characters", "bytes"))
    made = write_tokens(path, characters, tmp_path / "tokens")
    whole = made.path.read_bytes()
    assert "another tokenizer" in refusal(lambda: TokenFile.open(made.path, raw))
    for broken, said in (
        (whole[:-1], "73 bytes by its header"),
        (whole + b"\0", "73 bytes by its header"),
        (whole[:40], "cut short"),
        (b"", "no token file"),
        (b"text" + whole, "no token file"),
        (whole[:8] + b"\2" + whole[9:], "version 1"),
    ):
        told = refusal(lambda broken=broken: TokenFile.open(write(made.path, broken)))  # type: ignore[misc]
        assert told.startswith(str(made.path))
        assert said in told
    assert "absent" in refusal(lambda: TokenFile.open(tmp_path / "absent"))


MEMORY = """
import re, sys
from pathlib import Path
from plainformer.text import Batches, train_tokenizer, write_tokens
import tokenizers
def bytes_of(what): return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
idle = bytes_of("VmRSS")
made = write_tokens(sys.argv[2], train_tokenizer(sys.argv[1], sys.argv[2]), sys.argv[3])
Batches(made.tokens, 128, 12, 0).at(0)
print(bytes_of("VmHWM") - idle)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory of a process is read from /proc")
@pytest.mark.parametrize(
    "kind, size, most", [("characters", 40_000_000, 40_000_000), ("bpe:300", 10_000_000, 60_000_000)]
)
def test_memory_does_not_grow_with_the_text(tmp_path: Path, kind: str, size: int, most: int) -> None:
    """About 20 MB are used for characters and 40 MB for BPE, at any size of the text."""
    lines = "".join(f"word{number * 7919 % 1009} \u00e9\n" for number in range(10_000)).encode()
    path = write(tmp_path / "big.txt", lines * (size // len(lines)))
    found = python(MEMORY, kind, path, tmp_path / "tokens")
    assert found.returncode == 0, found.stderr.decode()
    assert int(found.stdout) < most


# --- the split --------------------------------------------------------------------------------------------------------


def test_the_last_share_of_the_tokens_validates() -> None:
    assert split(1_115_394) == (range(1_003_854), range(1_003_854, 1_115_394))
    assert split(9) == (range(8), range(8, 9))
    assert split(100, 0.0) == (range(100), range(100, 100))
    assert split(10**17, 0.3) == (range(7 * 10**16), range(7 * 10**16, 10**17))  # exact where floats are not
    for share in (1.0, -0.1, 2):
        assert f"validation share = {share}" in refusal(lambda share=share: split(100, share))  # type: ignore[misc]


def test_each_part_that_is_too_short_is_refused_by_name_with_found_and_needed() -> None:
    check_lengths(64, train=65, validation=65)
    check_lengths(64, train=65)
    assert refusal(lambda: check_lengths(64, train=8, validation=1)).splitlines() == [
        f"{name} = '{found} tokens': at least 65 tokens are needed (context + 1); "
        "use a longer text or a smaller context"
        for name, found in (("train part", 8), ("validation part", 1))
    ]
    assert "validation part = '64 tokens'" in refusal(lambda: check_lengths(64, train=90, validation=64))
    assert "train part = '64 tokens'" in refusal(lambda: Batches(np.zeros(64, np.uint8), 64, 2, 0))
    for wrong in ((0, 1), (4, 0)):
        assert "must be at least 1" in refusal(lambda wrong=wrong: Batches(np.zeros(9), *wrong, 0))  # type: ignore[misc]


# --- batches ----------------------------------------------------------------------------------------------------------

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(0, 200)).map(
    lambda s: (s[0], s[1], s[0] + 1 + s[2])
)


@given(SIZES, st.integers(), st.lists(st.integers(0, 10**9), min_size=1, max_size=5))
def test_a_batch_is_a_function_of_seed_and_step_alone(sizes: tuple[int, int, int], seed: int, steps: list[int]) -> None:
    seq_len, batch_size, n_tokens = sizes
    tokens = np.arange(n_tokens, dtype=np.uint16)
    seen = {step: Batches(tokens, seq_len, batch_size, seed).at(step) for step in steps}
    batches = Batches(tokens, seq_len, batch_size, seed)
    for step in sorted(steps):
        x_BT, y_BT = batches.at(step)
        assert x_BT.shape == y_BT.shape == (batch_size, seq_len)
        assert x_BT.dtype == y_BT.dtype == np.int64
        assert np.array_equal(y_BT, x_BT + 1)  # the tokens count up, so the next one is one more
        assert np.array_equal(x_BT, seen[step][0])
        assert np.array_equal(y_BT, seen[step][1])


@given(SIZES, st.integers(0, 50), st.integers(0, 3))
def test_each_window_is_seen_once_an_epoch_and_each_target_at_most_once(
    sizes: tuple[int, int, int], seed: int, epoch: int
) -> None:
    seq_len, batch_size, n_tokens = sizes
    batches = Batches(np.arange(n_tokens), seq_len, batch_size, seed)
    n_windows = batches.n_windows
    first_step, skip = divmod(epoch * n_windows, batch_size)
    rows = np.concatenate([batches.at(first_step + more)[1] for more in range(n_windows // batch_size + 2)])
    targets = np.sort(rows[skip : skip + n_windows].ravel())
    assert np.array_equal(targets, np.arange(targets[0], targets[0] + n_windows * seq_len))  # side by side, no gap
    assert n_tokens - 1 - len(targets) < 2 * seq_len


def test_every_token_is_a_target_within_a_few_epochs() -> None:
    """An epoch's first token is one of 15, by a hash of seed and epoch: 200 epochs draw the same ones each time."""
    batches = Batches(np.arange(103), 8, 11, seed=0)
    assert batches.n_windows == 11
    seen = np.unique(np.concatenate([batches.at(epoch)[1].ravel() for epoch in range(200)]))
    assert np.array_equal(seen, np.arange(1, 103))


def test_an_epochs_order_looks_random_and_differs_by_seed_and_epoch() -> None:
    """A random order's correlation is beyond 0.13 once in 20,000; the seeds here are fixed, so it never changes."""
    orders = set()
    for seed in range(4):
        batches = Batches(np.arange(8 * 1001), 8, 1000, seed)
        for epoch in range(3):
            starts = np.array(batches.starts(epoch))
            orders.add(tuple(starts))
            assert abs(np.corrcoef(starts, np.arange(1000))[0, 1]) < 0.13
            assert abs(np.corrcoef(starts[:-1], starts[1:])[0, 1]) < 0.13
    assert len(orders) == 12


def test_a_seed_draws_the_same_windows_for_ever() -> None:
    """A run started by an older release resumes with the batches it would have had."""
    batches = Batches(np.zeros(1_003_854, np.uint8), 64, 4, seed=1337)
    assert batches.starts(0) == [53491, 631987, 293811, 684147]
    assert batches.starts(1) == [206963, 298803, 958835, 65715]
    assert batches.starts(10**6) == [869564, 111292, 724284, 779452]


def test_a_text_of_any_size_costs_a_step_nothing() -> None:
    tokens = np.broadcast_to(np.uint8(7), (10**15,))
    x_BT, _ = Batches(tokens, 16, 3, seed=5).at(10**12)
    assert x_BT.tolist() == [[7] * 16] * 3
    assert "step = -1" in refusal(lambda: Batches(tokens, 16, 3, seed=5).at(-1))


# --- evaluation -------------------------------------------------------------------------------------------------------


@given(st.integers(2, 120), st.integers(1, 20), st.one_of(st.none(), st.integers(1, 20)))
def test_each_target_is_scored_once_with_all_the_context_there_is(
    n_tokens: int, seq_len: int, stride: int | None
) -> None:
    stride = min(stride or seq_len, seq_len)
    scored: Counter[int] = Counter()
    for x_T, y_T, first_scored in eval_blocks(np.arange(n_tokens, dtype=np.uint8), seq_len, stride):
        assert x_T.dtype == y_T.dtype == np.int64
        assert 1 <= len(x_T) <= seq_len
        assert np.array_equal(y_T, x_T + 1)
        assert first_scored < len(y_T)
        scored.update(y_T[first_scored:].tolist())
        past = y_T[first_scored] - x_T[0]  # tokens that the first scored target can look back on
        assert past == min(y_T[first_scored], seq_len - stride + 1) or x_T[0] == 0
    assert scored == Counter(range(1, n_tokens))


def test_side_by_side_blocks_are_the_default_and_the_last_is_shorter() -> None:
    blocks = [(x_T.tolist(), first) for x_T, _, first in eval_blocks(np.arange(41), 16)]
    assert blocks == [(list(range(16)), 0), (list(range(16, 32)), 0), (list(range(32, 40)), 0)]


def test_one_token_or_none_or_a_stride_that_skips_is_refused_before_any_block() -> None:
    for n_tokens in (0, 1):
        said = refusal(lambda n_tokens=n_tokens: eval_blocks(np.zeros(n_tokens), 8))  # type: ignore[misc]
        assert f"'{n_tokens} tokens': at least 2" in said
    for stride in (0, 9, -1):
        said = refusal(lambda stride=stride: eval_blocks(np.zeros(20), 8, stride))  # type: ignore[misc]
        assert f"stride = {stride}: must be from 1 to the context, 8" in said
    assert "seq_len = 0" in refusal(lambda: eval_blocks(np.zeros(20), 0))
