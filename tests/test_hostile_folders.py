"""Whatever is wrong with a folder is said by file and tensor, within two seconds and 200 MB, and nothing of it runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import plainformer as pf
from hostile import ATTACKS, BIN, WEIGHTS, Runs, flipped, told, whole
from plainformer.cli import main
from plainformer.generation import published


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole(tmp_path_factory.mktemp("hostile") / "whole")


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are asked of POSIX systems")
@pytest.mark.parametrize("name", ATTACKS)
def test_a_bad_folder_is_refused_by_file_and_tensor(
    name: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attack, must_name = ATTACKS[name]
    folder = Path(shutil.copytree(base, tmp_path / "folder"))
    attack(folder)
    start = time.perf_counter()
    said = told(folder)
    assert said is not None, "it loaded"
    assert must_name in said
    assert time.perf_counter() - start < 2
    assert len(said) < 20_000
    assert "this ran" not in capsys.readouterr().out
    assert "weights_only" not in said, "nobody is told how to switch the guard off"


@pytest.mark.parametrize("key", ["repetition_penalty", "length_penalty"])
def test_a_number_of_writing_that_no_float_holds_is_refused_by_key(key: str, base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "folder"))
    for number in (10**400, -(10**4000), float("inf"), True):
        (folder / "generation_config.json").write_text(json.dumps({key: number}), encoding="utf-8")
        with pytest.raises(pf.PlainformerError, match=rf"generation_config\.json: {key} = .*: must be a finite number"):
            published(folder)


def test_the_whole_folder_loads(base: Path) -> None:
    assert told(base) is None


@pytest.mark.parametrize("seed", range(120))
def test_a_folder_with_other_bytes_loads_or_is_refused(seed: int, base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "folder"))
    flipped(folder, seed)
    told(folder)  # nothing but our own refusal comes out


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory of a process is read from /proc")
def test_refusals_take_two_seconds_and_200_megabytes_at_most() -> None:
    program = Path(__file__).with_name("hostile.py")
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    assert found["n"] == len(ATTACKS)
    assert found["seconds"] < 2, found
    assert found["bytes"] < 200_000_000, found


def test_f36_a_pickle_beside_good_weights_is_never_opened(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "folder"))
    torch.save({"a": Runs()}, folder / BIN)
    assert told(folder) is None
    torch.save({"a": Runs()}, folder / "evil.pt")
    for file in (folder / "evil.pt", folder / BIN):
        with pytest.raises(pf.PlainformerError, match="would run code"):
            pf.load(file)
        assert main(["generate", str(file), "--prompt", "a"]) == 2
    assert "this ran" not in capsys.readouterr().out
    assert load_file(folder / WEIGHTS).keys()


def test_f20_size_still_works_on_folders_that_do_not_load(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "folder"))
    (folder / WEIGHTS).unlink()
    assert told(folder) is not None
    assert main(["size", str(folder)]) == 0
