"""`plainformer generate` and `plainformer inspect`: what they print, what they choose, what they refuse."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from automata import COIN, UNICODE, automaton, bytes_and_end, chain, characters, coin, run_folder, text_chain, tiny_spec
from plainformer.cli import generate as command
from plainformer.cli.trained import device_at
from plainformer.faults import PlainformerError
from plainformer.generation import decoding
from plainformer.model import Transformer

Asked = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("runs")
    digits = characters("0123456789")
    made = {
        "unicode": run_folder(folder / "unicode", text_chain(UNICODE), bytes_and_end()),
        "coin": run_folder(folder / "coin", coin(), characters(COIN)),
        "xyz": run_folder(folder / "xyz", chain({0: 1, 1: 2, 2: 0}, n=3, max_seq_len=40), characters("xyz")),
        "digits": run_folder(folder / "digits", Transformer(tiny_spec(10)), digits),
        "lines": run_folder(folder / "lines", chain({0: 1, 1: 0, 2: 0}, n=3), characters("ab\n")),
        "wide": run_folder(folder / "wide", automaton(np.zeros((3, 3)), n_rows=9), characters("\nab")),
    }
    return made


# --- how fast ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_weights_in_another_form_write_and_what_rounding_changed_is_told(
    ask: Asked, runs: dict[str, str], dtype: str
) -> None:
    words = ["generate", runs["digits"], "--prompt", "1", "--seed", "3", "--max-new-tokens", "5", "--dtype", dtype]
    status, out, err = ask(*words)
    assert status == 0
    assert len(out) == len("1") + 5 + len("\n")
    assert bool(re.search(r"weights in 8 bits: off by 0\.[1-9]\d*%", err)) == (dtype == "int8")


def test_without_a_compiler_one_line_says_so(ask: Asked, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from plainformer.rows import quickening

    monkeypatch.setattr(quickening, "library", lambda: (None, "no C compiler is here"))
    status, _, err = ask("generate", runs["xyz"], "--prompt", "x", "--greedy", "--max-new-tokens", "2")
    assert status == 0
    assert err.count("no C compiler is here: torch's own products are used") == 1


# --- what is printed --------------------------------------------------------------------------------------------------


def test_the_prompt_and_its_text_go_to_stdout_and_words_to_stderr(ask: Asked, runs: dict[str, str]) -> None:
    status, out, err = ask("generate", runs["unicode"], "--prompt", "A", "--greedy")
    assert (status, out) == (0, UNICODE + "\n")
    assert "14 tokens in" in err
    assert "tokens/s" in err


def test_a_text_cut_inside_a_character_ends_in_one_mark_streamed_and_not(ask: Asked, runs: dict[str, str]) -> None:
    said = ("generate", runs["unicode"], "--prompt", "A", "--greedy", "--max-new-tokens", "5")
    assert ask(*said)[:2] == (0, "A éB\ufffd\n")
    assert json.loads(ask(*said, "--json")[1])["rows"][0]["text"] == " éB\ufffd"


def test_the_keys_of_json_are_the_design_s(ask: Asked, runs: dict[str, str], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("A\nx\n", encoding="utf-8")
    status, out, _ = ask(
        "generate", runs["unicode"], "--prompts", str(prompts), "--greedy", "--json", "--max-new-tokens", "20"
    )
    said = json.loads(out)
    assert status == 0
    assert list(said) == ["seed", "rows", "tokens_per_second"]
    assert said["tokens_per_second"] > 0
    first, second = said["rows"]
    assert list(first) == ["prompt", "tokens", "text", "finish_reason"]
    assert first["text"] == UNICODE[1:]
    assert first["tokens"] == [*UNICODE[1:].encode(), 256]
    assert (first["prompt"], first["finish_reason"]) == ("A", "stop")
    assert (second["prompt"], second["finish_reason"], len(second["tokens"])) == ("x", "length", 20)


def test_a_marker_typed_by_a_person_is_text(ask: Asked, runs: dict[str, str]) -> None:
    _, out, _ = ask(
        "generate", runs["unicode"], "--prompt", "<|endoftext|>", "--greedy", "--json", "--max-new-tokens", "1"
    )
    assert json.loads(out)["rows"][0]["tokens"] == [0], "what comes after '>', not after the control token"


def test_several_texts_stand_apart_each_with_its_prompt(ask: Asked, runs: dict[str, str], tmp_path: Path) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("x\r\ny\n\nx", encoding="utf-8")
    status, out, _ = ask("generate", runs["xyz"], "--prompts", str(prompts), "--greedy", "--max-new-tokens", "3")
    assert status == 0
    assert out == f"--- {prompts}:1\nxyzx\n--- {prompts}:2\nyzxy\n--- {prompts}:3\nyzx\n--- {prompts}:4\nxyzx\n"
    _, out, _ = ask("generate", runs["coin"], "--prompt", "S", "--samples", "2", "--seed", "7", "--max-new-tokens", "5")
    first, a, second, b = out.splitlines()
    assert (first, second) == ("--- sample 1", "--- sample 2")
    assert a[0] == b[0] == "S"


def test_more_rows_than_fit_at_once_are_the_same_rows(
    ask: Asked, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "generate",
        runs["coin"],
        "--prompt",
        "S",
        "--samples",
        "7",
        "--seed",
        "1",
        "--max-new-tokens",
        "9",
        "--json",
    )
    want = json.loads(ask(*said)[1])["rows"]
    monkeypatch.setattr(command, "ROWS_AT_ONCE", 2)
    assert json.loads(ask(*said)[1])["rows"] == want
    assert len({row["text"] for row in want}) == 7


def test_beams_find_more_samples_than_fit_at_once(
    ask: Asked, runs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("S\na\nS\n", encoding="utf-8")
    said = ("generate", runs["coin"], "--prompts", str(prompts), "--beams", "5", "--samples", "5")
    said = (*said, "--max-new-tokens", "4", "--json")
    want = json.loads(ask(*said)[1])["rows"]
    assert [row["prompt"] for row in want] == 5 * ["S"] + 5 * ["a"] + 5 * ["S"]
    for at_once in (2, 7, 11):
        monkeypatch.setattr(command, "ROWS_AT_ONCE", at_once)
        assert json.loads(ask(*said)[1])["rows"] == want


# --- the seed ---------------------------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_bytes(ask: Asked, runs: dict[str, str]) -> None:
    def text(seed: str, samples: str) -> str:
        return ask("generate", runs["coin"], "--prompt", "S", "--seed", seed, "--samples", samples)[1]

    assert text("7", "4") == text("7", "4")
    assert text("7", "4") != text("8", "4")
    assert text("7", "1") == text("7", "4").splitlines()[1] + "\n"


def test_a_seed_that_was_drawn_is_told_and_gives_the_text_again(ask: Asked, runs: dict[str, str]) -> None:
    _, out, err = ask("generate", runs["coin"], "--prompt", "S")
    (seed,) = re.findall(r"^seed (\d+) \(drawn: --seed \1 gives the same text\)$", err, re.MULTILINE)
    assert ask("generate", runs["coin"], "--prompt", "S", "--seed", seed)[1] == out
    assert ask("generate", runs["coin"], "--prompt", "S")[1] != out
    assert "seed" not in ask("generate", runs["coin"], "--prompt", "S", "--greedy")[2]


def test_one_beam_draws_nothing(ask: Asked, runs: dict[str, str]) -> None:
    said = ("generate", runs["coin"], "--prompt", "S", "--max-new-tokens", "9")
    status, out, err = ask(*said, "--beams", "1")
    assert (status, out) == (0, "S" + 9 * "a" + "\n") == ask(*said, "--greedy")[:2]
    assert "seed" not in err
    assert "--samples = 2: without chance" in ask(*said, "--beams", "1", "--samples", "2")[2]


def test_the_cache_changes_no_byte(ask: Asked, runs: dict[str, str]) -> None:
    said = ("generate", runs["digits"], "--prompt", "12", "--seed", "3", "--max-new-tokens", "20")
    assert ask(*said)[1] == ask(*said, "--no-cache")[1]


def test_top_k_0_is_off(ask: Asked, runs: dict[str, str]) -> None:
    said = ("generate", runs["coin"], "--prompt", "S", "--seed", "3", "--temperature", "1")
    assert ask(*said)[1] == ask(*said, "--top-k", "0")[1] == ask(*said, "--top-k", "50")[1]
    assert set(ask(*said, "--top-k", "1")[1][1:].strip()) == {"a"}


# --- where it ends ----------------------------------------------------------------------------------------------------


def test_a_text_ends_right_before_a_stop_text_and_does_not_print_it(ask: Asked, runs: dict[str, str]) -> None:
    said = ("generate", runs["xyz"], "--prompt", "x", "--greedy", "--stop", "nothing", "--stop", "zxyz")
    assert ask(*said)[:2] == (0, "xy\n")
    row = json.loads(ask(*said, "--json")[1])["rows"][0]
    assert (row["text"], row["finish_reason"]) == ("y", "stop")


def test_a_text_ends_with_the_context_and_says_so(ask: Asked, runs: dict[str, str], tmp_path: Path) -> None:
    lines = str(tmp_path / "lines.txt")
    Path(lines).write_text("x\ny\nz\n")
    status, out, err = ask("generate", runs["xyz"], "--prompt", "xyz", "--greedy")
    assert status == 0
    assert len(out) == 41
    assert "the context holds 40 tokens: at most 37 new ones, not 200" in err
    row = json.loads(ask("generate", runs["xyz"], "--prompt", "xyz", "--greedy", "--json")[1])["rows"][0]
    assert (row["finish_reason"], len(row["tokens"])) == ("context", 37)
    assert "not 200 (and so for 2 more prompts)\n" in ask("generate", runs["xyz"], "--prompts", lines, "--greedy")[2]
    assert "context" not in ask("generate", runs["xyz"], "--prompt", "xyz", "--greedy", "--max-new-tokens", "37")[2]


def test_of_a_prompt_past_the_context_the_end_is_read_and_that_is_said(ask: Asked, runs: dict[str, str]) -> None:
    prompt = "y" * 50 + "x"
    status, out, err = ask("generate", runs["xyz"], "--prompt", prompt, "--greedy", "--max-new-tokens", "4")
    assert (status, out) == (0, f"{prompt}yzxy\n")
    assert "--prompt: 51 tokens, the context holds 40: only the last 36 are read" in err


# --- where it starts --------------------------------------------------------------------------------------------------


def test_no_prompt_and_an_empty_one_are_the_same_and_start_from_a_token_of_the_vocabulary(
    ask: Asked, runs: dict[str, str]
) -> None:
    for run in ("digits", "xyz", "wide", "unicode"):
        none, empty = (
            ask("generate", runs[run], *more, "--seed", "1", "--max-new-tokens", "9") for more in ((), ("--prompt", ""))
        )
        assert none[:2] == empty[:2]
        assert none[0] == 0
    assert ask("generate", runs["xyz"], "--greedy", "--max-new-tokens", "3")[1] == "yzx\n", "from its first token"
    assert ask("generate", runs["lines"], "--greedy", "--max-new-tokens", "3")[1] == "aba\n", "from its newline"


def test_rows_of_the_head_beyond_the_tokenizer_are_never_written(ask: Asked, runs: dict[str, str]) -> None:
    row = json.loads(ask("generate", runs["wide"], "--temperature", "9", "--json")[1])["rows"][0]
    assert set(row["tokens"]) == {0, 1, 2}


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, told",
    [
        (("--prompt", "12x"), "--prompt = 'x': U+0078 at character 2"),
        (("--prompt", "1", "--prompts", "f"), "--prompt and --prompts = 'f': cannot both be given"),
        (("--greedy", "--temperature", "0.5"), "--temperature = 0.5: --greedy"),
        (("--greedy", "--top-k", "3"), "--top-k = 3: --greedy"),
        (("--greedy", "--samples", "3"), "--samples = 3: without chance"),
        (("--temperature", "0", "--samples", "3"), "--samples = 3: without chance"),
        (("--samples", "0"), "--samples = 0: must be at least 1"),
        (("--max-new-tokens", "-1"), "--max-new-tokens = -1: must be at least 0"),
        (("--temperature", "nan"), "--temperature = nan: must be a finite number"),
        (("--temperature", "-1"), "--temperature = -1.0: must be a finite number"),
        (("--top-k", "-1"), "--top-k = -1: must be"),
        (("--top-p", "0"), "--top-p = 0.0: must be above 0"),
        (("--min-p", "2"), "--min-p = 2.0: must be"),
        (("--seed", "-1"), "--seed = -1: must be"),
        (("--stop", ""), "--stop = '': an empty text"),
        (("--prompts", "no-such-file"), "no-such-file"),
    ],
)
def test_what_cannot_be_is_refused_by_flag_value_and_rule(
    ask: Asked, runs: dict[str, str], words: tuple[str, ...], told: str
) -> None:
    status, out, err = ask("generate", runs["digits"], *words)
    assert (status, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


def test_a_prompt_in_a_file_is_refused_by_its_line(ask: Asked, runs: dict[str, str], tmp_path: Path) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("12\n1a\n", encoding="utf-8")
    status, _, err = ask("generate", runs["digits"], "--prompts", str(prompts))
    assert status == 2
    assert f"{prompts}:2 = 'a': U+0061" in err
    prompts.write_bytes(b"")
    assert ask("generate", runs["digits"], "--prompts", str(prompts))[0] == 2
    prompts.write_bytes(b"1\xff2\n")
    assert "UTF-8" in ask("generate", runs["digits"], "--prompts", str(prompts))[2]


@pytest.mark.parametrize(
    "name, told",
    [
        ("small", "has no weights; train one: plainformer train TEXT --preset small --out RUN"),
        ("gpt2", "has no weights; train one: plainformer train TEXT --out RUN"),
        ("smal", "did you mean small"),
        ("./nowhere", "there is no such file or folder"),
    ],
)
def test_a_shape_without_weights_is_refused_and_the_way_to_some_is_told(ask: Asked, name: str, told: str) -> None:
    status, out, err = ask("generate", name, "--prompt", "a")
    assert (status, out) == (2, "")
    assert told in err


def test_a_config_is_a_shape_too(ask: Asked, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "vocab_size": 9, "n_positions": 8, "n_embd": 4, "n_layer": 1, "n_head": 1})
    )
    for place in (tmp_path, tmp_path / "config.json"):
        assert "has no weights" in ask("generate", str(place), "--prompt", "a")[2]


def test_an_id_outside_the_vocabulary_is_one_line(
    ask: Asked, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "draw", lambda *_: -9223372036854775808)
    status, _, err = ask("generate", runs["digits"], "--prompt", "1", "--seed", "1")
    assert status == 2
    assert "token id = -9223372036854775808" in err


# --- inspect ----------------------------------------------------------------------------------------------------------


def test_inspect_tells_surprisal_by_token_and_the_verdicts(ask: Asked, runs: dict[str, str]) -> None:
    status, out, _ = ask("inspect", runs["coin"], "--prompt", "Sabc")
    assert status == 0
    lines = out.splitlines()
    assert [line.split()[1] for line in lines[1:5]] == list("Sabc")
    assert [line.split()[2] for line in lines[2:5]] == [f"{-np.log2(p):.2f}" for p in (0.45, 0.30, 0.17)]
    assert max(json.loads(ask("inspect", runs["xyz"], "--prompt", "xyzx", "--json")[1])["surprisal"][1:]) < 0.001
    assert "causal: yes: changing 3 tokens, one at a time, moved no earlier logit by a bit" in out
    assert "positions: not used" in out
    assert "positions: used" in ask("inspect", runs["digits"], "--prompt", "123")[1]


def test_inspect_gives_json_with_the_maps(ask: Asked, runs: dict[str, str]) -> None:
    status, out, _ = ask("inspect", runs["digits"], "--prompt", "1234", "--json")
    said = json.loads(out)
    assert status == 0
    assert (said["tokens"], said["texts"]) == ([1, 2, 3, 4], list("1234"))
    assert said["surprisal"][0] is None
    assert len(said["surprisal"]) == 4
    assert said["causal"] is True
    assert said["uses_positions"] is True
    assert list(said["attention"]) == ["decoder.layers.0.attention", "decoder.layers.1.attention"]
    for maps in said["attention"].values():
        assert np.shape(maps) == (4, 4, 4)
        assert np.allclose(np.sum(maps, -1), 1)
        assert (np.triu(maps, 1) == 0).all()


def test_inspect_draws_every_head(ask: Asked, runs: dict[str, str], tmp_path: Path) -> None:
    from xml.etree import ElementTree

    picture = tmp_path / "maps.svg"
    status, _, err = ask("inspect", runs["digits"], "--prompt", "0123", "--svg", str(picture))
    assert status == 0
    assert str(picture) in err
    words = [element.text for element in ElementTree.parse(picture).iter() if element.tag.endswith("text")]
    assert [f"layers.{i}.attention head {h}" in words for i in (0, 1) for h in range(4)] == [True] * 8
    status, _, err = ask("inspect", runs["digits"], "--prompt", "0", "--svg", str(tmp_path / "no" / "where.svg"))
    assert status == 2
    assert "where.svg" in err


def test_inspect_shows_what_cannot_be_seen_by_a_mark(ask: Asked) -> None:
    status, out, err = ask("inspect", "tiny", "--prompt", "a \n\x1b\u200b\u2028")
    assert status == 0
    assert "has no weights: these are its first ones" in err
    assert [line.split()[1] for line in out.splitlines()[1:7]] == ["a", "␣", "␊", "␛", "U+200B", "U+2028"]
    assert "\x1b" not in out


@pytest.mark.parametrize(
    "words, told",
    [
        (("digits", "--prompt", ""), "is empty"),
        (("digits", "--prompt", "1x"), "U+0078"),
        (("digits", "--prompt", "1" * 33), "the context holds 32"),
        (("llama-3-8b", "--prompt", "a"), "too many to make some"),
        (("t5-small", "--prompt", "a"), "MODEL = 't5-small': reads a source beside the prompt"),
    ],
)
def test_inspect_refuses_what_cannot_be(ask: Asked, runs: dict[str, str], words: tuple[str, ...], told: str) -> None:
    status, out, err = ask("inspect", runs.get(words[0], words[0]), *words[1:])
    assert (status, out) == (2, "")
    assert told in err


# --- as a process -----------------------------------------------------------------------------------------------------


def test_a_stream_that_lacks_a_character_gets_a_stand_in(runs: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "plainformer", "generate", runs["unicode"], "--prompt", "A", "--greedy"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (ran.returncode, ran.stdout) == (0, b"A ?B?C?D\n")


def test_text_comes_as_it_is_drawn(runs: dict[str, str]) -> None:
    """The first character is there before the last is drawn: the pipe is read while the process still waits."""
    slow = (
        "import sys, time; from plainformer.generation import decoding as d; draw = d.draw\n"
        "def late(*a):\n"
        "    late.n += 1\n"
        "    if late.n == 4: sys.stdin.readline()\n"
        "    return draw(*a)\n"
        "late.n = 0; d.draw = late\n"
        "from plainformer.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", slow, "generate", runs["xyz"], "--prompt", "x", "--greedy", "--max-new-tokens", "6"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=buffered
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = b""
        while len(said) < 4 and select.select([process.stdout], [], [], 60)[0]:
            said += os.read(process.stdout.fileno(), 4)
        process.stdin.write(b"go on\n")
        process.stdin.close()
        assert (said, process.stdout.read()) == (b"xyzx", b"yzx\n")
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["cuda", "mps", "cuda:7", "gpu", ""])
def test_a_device_that_is_not_here_is_refused_with_what_is(
    name: str, ask: Asked, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    status, out, err = ask("generate", runs["xyz"], "--prompt", "x", "--device", name)
    assert (status, out) == (2, "")
    assert "is not here; what is: cpu" in err


def test_a_device_that_is_here_is_none_of_a_gpu_s_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_at("cuda", None) == torch.device("cuda:0")
    assert device_at("cuda:1", "bfloat16") == torch.device("cuda:1")
    with pytest.raises(PlainformerError, match="what is: cpu, cuda:0, cuda:1"):
        device_at("cuda:2", None)
    with pytest.raises(PlainformerError, match="processors alone"):
        device_at("cuda", "int8")
