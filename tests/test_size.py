"""`plainformer size`, as a stranger runs it: whole outputs, exit codes, refusals, and what it may not load."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plainformer
from plainformer.cli import COMMANDS, main
from plainformer.presets import presets
from plainformer.tree import to_json

GOLDEN = """\
gpt2: decoder, 12 layers, 768 wide, 50,257 tokens, context 1,024

  parameters                  124,439,808  124M
  without token tables         85,842,432  85.8M

  token tables                 38,597,376    31.02 % ██████▎
  positions                       786,432     0.63 % ▏
  attention                    28,348,416    22.78 % ████▌
  feed-forward                 56,669,184    45.54 % █████████▏
  norms                            38,400    0.031 %

  weights, float32          497,759,232 B  498 MB
  weights, bfloat16         248,879,616 B  249 MB
  weights, int8             124,439,808 B  124 MB
  weights, int4              62,219,904 B  62.2 MB
  cache of one token             36,864 B  bfloat16
  cache                      37,748,736 B  37.7 MB: 1 x 1,024 tokens, bfloat16

  forward, one token    284,812,800 FLOPs  285 MFLOPs: mean over 1,024 positions
  by the rule 2N        248,879,616 FLOPs  exact is 14.4 % more
  to train, AdamW         1,991,036,928 B  1.99 GB before activations
"""

LINES = """\
gpt2, counted as nanogpt: vocabulary padded to a multiple of 64, position tables
left out: nanoGPT's get_num_params

where                formula                      each          all
embedding            50,304 x 768           38,633,472   38,633,472
decoder.layers.*     12 x 7,087,872                      85,054,464
  attention_norm     768 + 768                   1,536       18,432
  attention.q k v    3 x (768 x 768 + 768)   1,771,776   21,261,312
  attention.out      768 x 768 + 768           590,592    7,087,104
  feed_forward_norm  768 + 768                   1,536       18,432
  feed_forward.up    3,072 x 768 + 3,072     2,362,368   28,348,416
  feed_forward.down  768 x 3,072 + 768       2,360,064   28,320,768
decoder.norm_last    768 + 768                   1,536        1,536
total                                                   123,689,472

token tables  38,633,472    31.23 % ██████▎
attention     28,348,416    22.92 % ████▋
feed-forward  56,669,184    45.82 % █████████▏
norms             38,400    0.031 %

every tensor of the model as it is  124,439,808
changed: embedding.weight               +36,096
left out: decoder.positions.weight     -786,432
total                               123,689,472
"""

KEYS = {
    "family": None,
    "model_type": None,
    "parameters": {
        **dict.fromkeys(("total", "non_embedding", "active", "active_without_input_table", "active_without_tables")),
        "by_part": dict.fromkeys(
            ("embedding", "position", "attention", "feed_forward", "expert", "router", "norm", "head", "other")
        ),
        "by_layers": None,
    },
    "weights_bytes": dict.fromkeys(("float32", "bfloat16", "fp8", "int8", "int4", "as_stored")),
    "kv_cache": dict.fromkeys(("bytes_per_token", "bytes", "bytes_as_expanded")),
    "flops": dict.fromkeys(("forward_per_token", "rule_2n", "context")),
    "training": dict.fromkeys(("flops_6nd", "flops_exact", "device_hours", "dollars", "bytes")),
    "notes": None,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "torch_dtype": "float16",
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process: exit status, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*words: str) -> tuple[int, str, str]:
        try:
            status = main(words)
        except SystemExit as left:  # argparse's own way
            status = int(left.code or 0)
        return status, *capsys.readouterr()

    return command


def keys_of(value: Any) -> Any:
    return {key: keys_of(inner) for key, inner in value.items()} if isinstance(value, dict) else None


def process(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **more}
    return subprocess.run(
        [sys.executable, "-m", "plainformer", *words], capture_output=True, text=True, encoding="utf-8", env=environment
    )


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_sheet_of_gpt2(run: Run) -> None:
    assert run("size", "gpt2") == (0, GOLDEN, "")


def test_the_sheet_is_the_same_when_it_is_piped() -> None:
    piped = process("size", "gpt2")
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, GOLDEN, "")


def test_the_line_table_of_gpt2_as_nanogpt_counts(run: Run) -> None:
    status, out, said = run("size", "gpt2", "--explain", "--convention", "nanogpt")
    assert (status, said) == (0, "")
    assert out.startswith(LINES)


def test_json_has_the_keys_that_are_promised(run: Run) -> None:
    for preset in presets:
        status, out, _ = run("size", preset, "--json")
        assert status == 0
        assert keys_of(json.loads(out)) == KEYS


def test_the_json_of_gpt2(run: Run) -> None:
    sheet = json.loads(run("size", "gpt2", "--json")[1])
    assert sheet["family"] == "gpt2"
    assert sheet["parameters"]["total"] == 124_439_808
    assert sheet["weights_bytes"]["bfloat16"] == 248_879_616
    assert sheet["kv_cache"] == {"bytes_per_token": 36_864, "bytes": 37_748_736, "bytes_as_expanded": 37_748_736}
    assert sheet["flops"] == {"forward_per_token": 284_812_800, "rule_2n": 248_879_616, "context": 1024}
    assert sheet["training"]["bytes"] == 16 * 124_439_808
    assert sheet["notes"] == []


def test_what_is_asked_of_it_is_in_the_figures(run: Run) -> None:
    asked = ("--batch", "4", "--context", "8192", "--kv-dtype", "fp8")
    sheet = json.loads(run("size", "llama-3-8b", "--json", *asked)[1])
    assert sheet["kv_cache"]["bytes_per_token"] == 65_536
    assert sheet["kv_cache"]["bytes"] == 4 * 8192 * 65_536
    assert sheet["flops"]["context"] == 8192


def test_an_encoder_keeps_no_cache(run: Run) -> None:
    assert set(json.loads(run("size", "bert-base", "--json")[1])["kv_cache"].values()) == {None}
    assert "cache" not in run("size", "bert-base")[1]


def test_training_in_operations_hours_and_dollars(run: Run) -> None:
    asked = ("--tokens", "140e9", "--sustained", "400e12", "--price", "2")
    training = json.loads(run("size", "gpt2", "--json", *asked)[1])["training"]
    assert training["flops_6nd"] == 6 * 124_439_808 * 140e9
    assert training["flops_exact"] == 3 * 284_812_800 * 140e9
    assert training["device_hours"] == pytest.approx(training["flops_exact"] / 400e12 / 3600)
    assert training["dollars"] == pytest.approx(2 * training["device_hours"])
    assert "device hours" in run("size", "gpt2", *asked)[1]


def test_a_convention_changes_the_counts_and_says_how(run: Run) -> None:
    sheet = json.loads(run("size", "gpt2", "--json", "--convention", "nanogpt")[1])
    assert sheet["parameters"]["total"] == 123_689_472
    assert sheet["convention"]["left_out"] == {"decoder.positions.weight": 786_432}
    assert sheet["convention"]["changes"] == 36_096
    assert sheet["weights_bytes"]["bfloat16"] == 248_879_616  # the model is what it is
    every = json.loads(run("size", "gpt2", "--json", "--convention", "all")[1])
    assert every["parameters"]["total"] == 124_439_808
    assert every["conventions"]["untied"] == 163_037_184
    assert "163,037,184" in run("size", "gpt2", "--convention", "all")[1]


@pytest.mark.parametrize("convention", [(), ("--convention", "authors")])
def test_every_row_of_explain_sums_to_the_total(run: Run, convention: tuple[str, ...]) -> None:
    sheet = json.loads(run("size", "fig3-4x32", "--json", "--explain", *convention)[1])
    assert sum(row["count"] for row in sheet["rows"]) == sheet["parameters"]["total"]
    assert any(row.get("same_as") == "embedding.weight" for row in sheet["rows"])


def test_several_models_are_rows(run: Run) -> None:
    names = ("gpt2", "mixtral-8x7b", "bert-base")
    table = run("size", *names)[1]
    assert "46,702,792,704" in table
    assert "12,879,925,248" in table
    sheets = json.loads(run("size", *names, "--json")[1])
    assert [sheet["family"] for sheet in sheets] == ["gpt2", "mixtral", "bert"]
    rows = list(csv.DictReader(io.StringIO(run("size", *names, "--csv", "--convention", "all")[1])))
    assert [row["model"] for row in rows] == list(names)
    assert rows[0]["conventions.nanogpt"] == "123689472"
    assert rows[1]["parameters.active"] == "12879925248"


def test_figure_3_in_one_command(run: Run) -> None:
    names = [name for name in presets if name.startswith("fig3-")]
    rows = csv.DictReader(io.StringIO(run("size", *names, "--csv", "--convention", "authors")[1]))
    counted = [int(row["parameters.total"]) for row in rows]
    assert counted == [1895712, 3688512, 7569024, 19676928, 34133376, 51735552, 82340736, 124753152]


def test_a_plot_is_whole_or_not_there(run: Run, tmp_path: Path) -> None:
    one, many = tmp_path / "one.svg", tmp_path / "many.svg"
    assert run("size", "gpt2", "--json", "--plot", str(one))[0] == 0
    assert run("size", "gpt2", "bert-base", "--plot", str(many))[0] == 0
    assert "38,597,376 (31.02 %)" in one.read_text(encoding="utf-8")
    assert "Where the parameters live" in many.read_text(encoding="utf-8")
    status, _, said = run("size", "gpt2", "--plot", str(tmp_path / "no" / "where.svg"))
    assert status == 2
    assert "--plot" in said
    assert {path.name for path in tmp_path.iterdir()} == {"one.svg", "many.svg"}


# --- what MODEL may be ------------------------------------------------------------------------------------------------


def test_a_config_and_its_folder_are_the_same_model(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    by_file = json.loads(run("size", str(tmp_path / "config.json"), "--json")[1])
    assert by_file == json.loads(run("size", str(tmp_path), "--json")[1])
    assert by_file["model_type"] == by_file["family"] == "llama"
    assert by_file["weights_bytes"]["as_stored"] == 2 * by_file["parameters"]["total"]


def test_a_run_and_a_step_in_it_are_the_spec_of_the_run(run: Run, tmp_path: Path) -> None:
    step = tmp_path / "checkpoints" / "step-10"
    step.mkdir(parents=True)
    (tmp_path / "spec.json").write_text(json.dumps(to_json(presets["tiny"])), encoding="utf-8")
    for place in (tmp_path, step, tmp_path / "spec.json"):
        status, out, _ = run("size", str(place), "--json")
        assert status == 0
        assert json.loads(out)["parameters"]["total"] == 117_120


def test_a_path_comes_before_a_preset_of_the_same_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert json.loads(run("size", "gpt2", "--json")[1])["family"] == "gpt2"  # a folder that says no model
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert json.loads(run("size", "gpt2", "--json")[1])["family"] == "llama"


BAD_FILES = {
    "not JSON": (b"{", "is not JSON"),
    "a list": (b"[1, 2]", "list"),
    "a number": (b"7", "int"),
    "null": (b"null", "NoneType"),
    "empty": (b"", "is not JSON"),
    "not UTF-8": (b'{"a": "\xff"}', "UTF-8"),
    "too deep": (b"[" * 100_000, "nested"),
    "no model_type": (b"{}", "model_type"),
    "an unknown family": (b'{"model_type": "gtp2"}', "gpt2"),
    "an unknown part": (b'{"is": "Sprec"}', "Sprec"),
    "a part that is no spec": (b'{"is": "Table", "n_rows": 2, "width": 3}', "not a whole spec"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_a_line_or_two(run: Run, tmp_path: Path, name: str) -> None:
    content, expected = BAD_FILES[name]
    (tmp_path / "config.json").write_bytes(content)
    status, out, said = run("size", str(tmp_path / "config.json"))
    assert (status, out) == (2, "")
    assert expected in said
    assert "config.json" in said
    assert said.count("\n") <= 2
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gpt",), "gpt2"),
        (("lama-3-8b",), "llama-3-8b"),
        (("./nowhere",), "no such file"),
        (("a/b/c",), "no such file"),
        (("nowhere.json",), "no such file"),
        (("openai-community/gpt2",), "the hub is not asked"),
        (("gpt2", "--context", "0"), "--context"),
        (("gpt2", "--context", "1e3"), "whole number"),
        (("gpt2", "--batch", "-1"), "--batch"),
        (("gpt2", "--tokens", "nan"), "above 0"),
        (("gpt2", "--dtype", "float12"), "float12"),
        (("gpt2", "--convention", "nanogtp"), "nanogpt"),
        (("gpt2", "--json", "--csv"), "not allowed"),
        ((), "MODEL"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_printed(run: Run, words: tuple[str, ...], expected: str) -> None:
    status, out, said = run("size", *words)
    assert (status, out) == (2, "")
    assert expected in said
    assert "Traceback" not in said


def test_a_folder_without_a_model_is_refused(run: Run, tmp_path: Path) -> None:
    status, _, said = run("size", str(tmp_path))
    assert status == 2
    assert "config.json" in said


def test_fields_that_do_not_divide_are_refused_by_name(run: Run, cases: Path) -> None:
    """F05."""
    folder = cases / "cases" / "field" / "hand" / "config"
    for name, keys in {
        "heads_do_not_divide": ("3", "100"),
        "kv_does_not_divide": ("5", "32"),
        "hidden_missing": ("hidden_size",),
        "empty": ("model_type",),
    }.items():
        status, out, said = run("size", str(folder / name))
        assert (status, out) == (2, "")
        assert all(key in said for key in keys)
        assert said.count("\n") <= 2


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("size", "gpt2", "--json"), ("--version",), ("size", "--help")])
def test_nothing_heavy_is_loaded_before_it_is_needed(words: tuple[str, ...]) -> None:
    code = f"""
import sys
from plainformer.cli import main
try:
    status = main({list(words)!r})
except SystemExit as left:
    status = left.code
print(status, sorted({{"torch", "numpy", "rich", "safetensors", "tokenizers"}} & set(sys.modules)), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "0 []"


def test_importing_the_library_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, plainformer as pf; pf.Ledger.of(pf.presets['gpt2']).total; pf.Cost.of(pf.presets['gpt2'])"
    code += "; print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_presets_are_the_presets_however_they_are_loaded() -> None:
    """A room and what is in it have one name: the room may not take its place."""
    code = "import plainformer.presets, plainformer; print(plainformer.presets['gpt2'].vocab_size)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "50257"


def test_a_spec_is_read_from_a_config_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert plainformer.read_spec(tmp_path) == plainformer.read_spec(str(tmp_path / "config.json"))
    with pytest.raises(plainformer.PlainformerError, match=r"(?i)no such file"):
        plainformer.read_spec(tmp_path / "nowhere")


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="trasnformer"):
        _ = plainformer.trasnformer


def test_every_command_has_a_module_that_declares_and_runs_it() -> None:
    from importlib import import_module

    for place, about in COMMANDS.values():
        module = import_module(place)
        assert callable(module.arguments)
        assert callable(module.run)
        assert about[0].islower()


def test_help_names_every_command(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert all(f"\n    {name}" in out for name in COMMANDS)
    assert run()[0] == 2
    assert run("siez", "gpt2")[0] == 2


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "plainformer: stopped\n"),
        (ZeroDivisionError("by 0"), 1, "plainformer: our fault, not yours: ZeroDivisionError: by 0 (--traceback shows"),
        (
            ModuleNotFoundError("no", name="torch"),
            2,
            "plainformer: this needs torch: pip install 'plainformer[torch]'\n",
        ),
        (
            ModuleNotFoundError("no", name="matplotlib.pyplot"),
            2,
            "plainformer: this needs matplotlib: pip install 'plain",
        ),
        (ModuleNotFoundError("no", name="plainformer.nowhere"), 1, "plainformer: our fault"),
    ],
)
def test_how_a_command_ends(
    run: Run, monkeypatch: pytest.MonkeyPatch, raised: BaseException, status: int, said: str
) -> None:
    def ends(_: object) -> int:
        raise raised

    monkeypatch.setattr("plainformer.cli.size.run", ends)
    ended, out, words = run("size", "gpt2")
    assert (ended, out) == (status, "")
    assert words.startswith(said)
    assert words.count("\n") == 1


def test_a_traceback_is_shown_where_it_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("plainformer.cli.size.run", ends)
    with pytest.raises(ZeroDivisionError):
        main(["size", "gpt2", "--traceback"])


def test_a_reader_that_stops_reading_is_no_fault() -> None:
    code = "import sys; from plainformer.cli import main; sys.exit(main(['size', 'gpt2', '--explain', '--json']))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0


def test_many_faults_of_one_kind_are_said_in_two_lines(run: Run, tmp_path: Path) -> None:
    spec = to_json(presets["gpt2"])
    for layer in spec["decoder"]["layers"]:
        layer[0]["branches"][0]["part"]["out"]["n_in"] = 700
    (tmp_path / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    status, _, said = run("size", str(tmp_path))
    assert status == 2
    assert "more faults" in said
    assert said.count("\n") == 2
