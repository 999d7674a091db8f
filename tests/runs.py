"""Small trained runs, made by the command itself in seconds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from plainformer.cli import main

WORDS = ("the", "tall", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "rats", "run")
SMALL = ("--preset", "tiny", "--d-model", "16", "--n-layers", "1", "--n-heads", "2", "--context", "16")
SHORT = (*SMALL, "--batch-size", "4", "--steps", "12", "--quiet")


def some_text(n_words: int = 600, seed: int = 0) -> str:
    """Words in a random order that the seed says, in lines."""
    drawn = random.Random(seed).choices(WORDS, k=n_words)
    return "\n".join(" ".join(drawn[i : i + 8]) for i in range(0, n_words, 8)) + "\n"


def write_text(folder: Path, n_words: int = 600, seed: int = 0) -> Path:
    path = folder / "text.txt"
    path.write_text(some_text(n_words, seed), encoding="utf-8")
    return path


def tiny_run(tmp_path_factory: pytest.TempPathFactory, *flags: str) -> Path:
    """A run folder of 12 steps on 600 words; later flags win over earlier ones. The text lies beside it, text.txt."""
    folder = tmp_path_factory.mktemp("tiny_run")
    text = write_text(folder)
    assert main(["train", str(text), "--out", str(folder / "run"), *SHORT, *flags]) == 0
    return folder / "run"


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
