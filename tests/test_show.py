"""`plainformer show`: the file is the model, bit for bit; it runs by itself; it reads as a person would write it.

B batch, T tokens, S the source's tokens, V vocabulary.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import laws
import plainformer as pf
import specs
import test_readings as fields
from conftest import ROOT
from plainformer import mixers
from plainformer import model as m
from plainformer import spec as s
from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.ledger import Ledger
from plainformer.source import Page, code, write
from plainformer.tree import PARTS, rewrite

NAMES = [*specs.TINY, *specs.ENCODERS, *specs.PAIRS, *map(str, range(12))]
SHAPES = ((2, 13), (1, 1), (3, specs.LENGTH))


@cache
def text_of(name: str) -> str:
    return write(specs.spec_of(name), name)


def module(text: str) -> ModuleType:
    made = ModuleType("shown")
    exec(compile(text, "shown.py", "exec"), made.__dict__)
    return made


def library(spec: s.Spec) -> m.Transformer:
    """The library's model in float32, with weights that show every rule."""
    model = m.Transformer(spec, initial=None).eval()
    model.take(specs.arrays_of(spec).items())
    return model


def asked(spec: s.Spec, n_rows: int, n_tokens: int) -> tuple[Tensor, ...]:
    tokens_BT = torch.tensor(specs.tokens_of(spec, n_rows, n_tokens))
    source_BS = laws.source_of(spec, n_rows)
    return (tokens_BT,) if source_BS is None else (torch.tensor(source_BS), tokens_BT)


def the_file_is_the_model(spec: s.Spec, text: str, shapes: tuple[tuple[int, int], ...] = SHAPES) -> None:
    """Same names, shapes, order; weights load strictly; the same bits."""
    model, shown = library(spec), module(text).Transformer().eval()
    rows = Ledger.of(spec).rows
    assert [(n, tuple(p.shape)) for n, p in shown.named_parameters()] == [
        (w.name, w.shape) for w in rows if not w.same_as and not w.buffer
    ]
    assert list(shown.state_dict()) == list(model.state_dict())
    shown.load_state_dict(model.state_dict())
    for n_rows, n_tokens in shapes:
        given = asked(spec, n_rows, n_tokens)
        with torch.no_grad():
            want_BTV, got_BTV = model(given[-1], memory=laws.heard(model, n_rows)), shown(*given)
        assert want_BTV.shape == got_BTV.shape
        assert torch.equal(want_BTV, got_BTV), f"{n_rows} rows of {n_tokens}: other bits"


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_the_model_bit_for_bit(name: str) -> None:
    the_file_is_the_model(specs.spec_of(name), text_of(name))


@pytest.mark.proof
@pytest.mark.parametrize("name", [str(seed) for seed in range(12, 400)])
def test_the_file_is_the_model_bit_for_bit_for_many_more(name: str) -> None:
    the_file_is_the_model(specs.spec_of(name), text_of(name))


@pytest.mark.parametrize("name", ["lesson", "fig3-4x32", "tiny", "small", "small-moe", "gpt2-style"])
def test_a_preset_is_shown_bit_for_bit(name: str) -> None:
    the_file_is_the_model(pf.presets[name], write(pf.presets[name], name), ((1, 9),))


@pytest.mark.proof
@pytest.mark.parametrize("name", ["gpt2", "bert-base", "t5-small", "t5-v1_1-base"])
def test_a_published_size_is_shown_bit_for_bit(name: str) -> None:
    the_file_is_the_model(pf.presets[name], write(pf.presets[name], name), ((1, 9),))


@pytest.mark.parametrize("name", list(pf.presets))
def test_every_preset_has_its_ledger_s_names_and_shapes(name: str) -> None:
    spec = pf.presets[name]
    with torch.device("meta"):
        shown = module(write(spec, name)).Transformer()
    rows = Ledger.of(spec).weights
    assert [(n, tuple(p.shape)) for n, p in shown.named_parameters()] == [(w.name, w.shape) for w in rows]


# --- what the test above would not let pass ---------------------------------------------------------------------------

SABOTAGE = {
    "another epsilon": ("gpt2", "EPS = 1e-05", "EPS = 1.1e-05"),
    "the other GELU": ("gpt2", ', approximate="tanh"', ""),
    "a glance ahead": ("gpt2", "is_causal=True", "is_causal=False"),
    "scores not scaled": ("gpt2", "scale=D_HEAD**-0.5", "scale=1.0"),
    "no residual": ("gpt2", "x_BTD = x_BTD + self.feed_forward", "x_BTD = self.feed_forward"),
    "positions one off": ("gpt2", "self.positions(positions_T)", "self.positions(positions_T * 0)"),
    "another base": ("llama", "THETA = 100.0", "THETA = 101.0"),
    "the other pairs": ("llama", "x.chunk(2, -1)", "x[..., 0::2], x[..., 1::2]"),
    "gate and up exchanged": ("llama", "F.silu(self.gate(x_BTD)) * self.up", "F.silu(self.up(x_BTD)) * self.gate"),
    "a wider window": ("mistral", "WINDOW = 4", "WINDOW = 5"),
    "an expert fewer": ("mixtral", "N_CHOSEN = 2", "N_CHOSEN = 1"),
    "gates of all": ("mixtral", "scores_NE.masked_fill(~chosen_NE, -torch.inf)", "scores_NE"),
    "a correction that counts": ("deepseek-v3", "gates_NE = p_NE", "gates_NE = corrected_NE"),
    "a head unscaled": ("t5", "x_BTD * D_MODEL**-0.5", "x_BTD"),
    "distances turned round": ("t5", "n * (ago_TS < 0)", "n * (ago_TS > 0)"),
    "types forgotten": ("bert", "+ self.types(types_BT)", "+ 0 * self.types(types_BT)"),
    "another name": ("gpt2", "norm_last", "norm_end"),
    "another order": (
        "gpt2",
        "self.up = nn.Linear(D_MODEL, D_FF)\n        self.down = nn.Linear(D_FF, D_MODEL)",
        "self.down = nn.Linear(D_FF, D_MODEL)\n        self.up = nn.Linear(D_MODEL, D_FF)",
    ),
}


@pytest.mark.parametrize("what", SABOTAGE)
def test_a_file_that_was_tampered_with_is_noticed(what: str) -> None:
    name, said, instead = SABOTAGE[what]
    text = text_of(name)
    assert said in text
    with pytest.raises(AssertionError):
        the_file_is_the_model(specs.spec_of(name), text.replace(said, instead))


# --- each field of a part ---------------------------------------------------------------------------------------------


def each_change(kind: type, name: str) -> Iterator[s.Spec]:
    yield from (changed for _, changed in fields.changes(kind, name, 1) if changed is not None)


def shown_or_refused_with_the_model(kind: type, name: str) -> None:
    """A field that is changed is in the file, or the file is refused where the model is."""
    for spec in each_change(kind, name):
        try:
            model = library(spec)
            with torch.no_grad():
                model(asked(spec, 1, 7)[-1], memory=laws.heard(model, 1))
        except PlainformerError as refused:
            if "tokens" in str(refused):
                continue
            with pytest.raises(PlainformerError, match=f"(?i){kind.__name__}|{name}"):
                write(spec)
        else:
            the_file_is_the_model(spec, write(spec), ((1, 7),))


QUICK = [(s.Norm, "plus_one"), (s.Scores, "softcap"), (s.Scaling, "kind"), (s.Stack, "passes"), (s.Spec, "towers")]


@pytest.mark.parametrize("kind, name", QUICK, ids=[f"{kind.__name__}.{name}" for kind, name in QUICK])
def test_a_field_is_shown_or_refused_with_the_model(kind: type, name: str) -> None:
    shown_or_refused_with_the_model(kind, name)


@pytest.mark.proof
@pytest.mark.parametrize("kind, name", fields.FIELDS, ids=[f"{k.__name__}.{name}" for k, name in fields.FIELDS])
def test_each_field_is_shown_or_refused_with_the_model(kind: type, name: str) -> None:
    shown_or_refused_with_the_model(kind, name)


def test_what_the_model_builds_has_code_and_all_else_is_refused_by_name() -> None:
    for name, part in PARTS.items():
        if part in m.build.registry:
            assert part in code.registry, name
        elif part not in code.registry:
            with pytest.raises(PlainformerError, match=name):
                code(object.__new__(part), Page(specs.GPT2))


def test_a_whole_with_a_part_without_code_is_refused() -> None:
    def gated(part: Any) -> Any:
        if not isinstance(part, s.Branch) or part.name != "attention":
            return part
        gate = s.Linear(n_in=12, n_out=part.part.out.n_in)
        return replace(part, part=mixers.GatedAttention(attention=part.part, gate=gate))

    with pytest.raises(PlainformerError, match="GatedAttention"):
        write(rewrite(specs.LLAMA, gated))


# --- by itself --------------------------------------------------------------------------------------------------------

ALONE = """
import runpy, sys
for model, weights in [pair.split(":") for pair in sys.argv[1:]]:
    sys.argv = [model, weights]
    runpy.run_path(model, run_name="__main__")
print(sorted(name for name in sys.modules if name.split(".")[0] in ("plainformer", "safetensors", "transformers")))
"""


def test_they_run_by_themselves_on_weights_of_ours(tmp_path: Path) -> None:
    pairs = {"gpt2": "safetensors", "deepseek-v3": "safetensors", "t5": "pt"}
    tokens, expected = torch.tensor([[0, 1, 2, 3]]), []
    for name, kind in pairs.items():
        spec, model = specs.spec_of(name), library(specs.spec_of(name))
        (tmp_path / f"{name}.py").write_text(text_of(name), encoding="utf-8")
        held = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        if kind == "pt":
            torch.save(held, tmp_path / f"{name}.pt")
        else:
            save_file(held, tmp_path / f"{name}.safetensors", metadata={"format": "pt"})
        with torch.no_grad():
            said_BTV = model(tokens, memory=model.encode(tokens) if spec.encoder else None)
        expected += [f"{Ledger.of(spec).total:,} parameters", str(said_BTV[0, -1, :8])]
    words = [f"{name}.py:{name}.{kind}" for name, kind in pairs.items()]
    command = [sys.executable, "-I", "-c", ALONE, *words]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [*expected, "[]"]


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "t5"])
def test_it_generates(name: str) -> None:
    spec = specs.spec_of(name)
    shown = module(write(spec, name))
    torch.manual_seed(0)
    given = asked(spec, 2, 3)
    drawn_BT = shown.generate(shown.Transformer().eval(), *given, 4)
    assert tuple(drawn_BT.shape) == (2, 7)
    assert torch.equal(drawn_BT[:, :3], given[-1])


# --- as a person would write it ---------------------------------------------------------------------------------------


def test_it_is_formatted_and_clean(tmp_path: Path) -> None:
    """As the project's own code is: long numbers and names stand in the published ones."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("no ruff: the form of shown files is not looked at")
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(text_of(name), encoding="utf-8")
    for name in ("gpt2", "llama-3.1-405b", "mixtral-8x7b", "deepseek-v3", "bert-large", "t5-v1_1-base", "small-moe"):
        (tmp_path / f"preset-{name}.py").write_text(write(pf.presets[name], name, "gpt2"), encoding="utf-8")
    settings = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["format", "--diff"], ["check"]):
        ran = subprocess.run([ruff, *command, *settings], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout[:3000]


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "llama-3-8b", "llama-3.1-405b", "mixtral-8x7b", "bert-base"])
def test_it_is_read_in_one_sitting(name: str) -> None:
    assert len(write(pf.presets[name], name).splitlines()) < 250


@pytest.mark.parametrize("name", NAMES)
def test_nothing_stands_in_it_that_it_does_not_use(name: str) -> None:
    """Every constant, function, class and argument is read somewhere."""
    tree = ast.parse(text_of(name))
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            assert node.name in read | {"generate"}, node.name
        if isinstance(node, ast.Assign):
            assert {target.id for target in node.targets if isinstance(target, ast.Name)} <= read
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        inside = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        assert {each.arg for each in function.args.args} - {"self"} <= inside, ast.unparse(function)[:80]


def test_no_family_s_file_speaks_of_another_s() -> None:
    gpt2, llama, bert = (write(pf.presets[name], name) for name in ("gpt2", "llama-3-8b", "bert-base"))
    for word in ("rotate", "THETA", "gate", "RMSNorm", "gqa", "math", "window", "None = None"):
        assert word not in gpt2, word
    for word in ("bias=True", "LayerNorm", "self.positions", "router", "math", "gelu", "types"):
        assert word not in llama, word
    assert "generate" not in bert
    assert "124,439,808" in gpt2
    assert "8,030,261,248" in llama


def test_a_name_s_letters_are_told() -> None:
    for name in NAMES:
        text = text_of(name)
        told = re.findall(r"[:;]\s([A-Z])\s", text.partition('\n"""')[0].partition("its shape")[2])
        used = {
            letter for found in re.findall(r"\b[a-z]\w*_([A-Z1]{1,5})\b", text) for letter in found if letter != "1"
        }
        assert used <= set(told), (name, used - set(told))


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_to_stdout_or_to_a_file_whole_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "gpt2"]) == 0
    text = capsys.readouterr().out
    assert text == write(pf.presets["gpt2"], "gpt2", "gpt2")
    out = tmp_path / "gpt2.py"
    assert main(["show", "gpt2", "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == text
    capsys.readouterr()
    assert main(["show", "tiny", "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == text
    assert main(["show", "tiny", "--out", str(out), "--force"]) == 0
    assert out.read_text(encoding="utf-8") == write(pf.presets["tiny"], "tiny")
    capsys.readouterr()
    assert main(["show", "tiny", "--out", str(tmp_path / "none" / "tiny.py")]) == 2
    assert main(["show", "tiny", "--out", str(tmp_path), "--force"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["gpt2.py"]


def test_a_folder_s_path_is_not_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from plainformer.tree import to_json

    folder = tmp_path / 'a "run" of mine'
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(to_json(specs.GPT2)), encoding="utf-8")
    assert main(["show", str(folder)]) == 0
    text = capsys.readouterr().out
    assert str(tmp_path) not in text
    the_file_is_the_model(specs.GPT2, text)


def test_a_model_that_cannot_be_shown_is_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from plainformer.tree import to_json

    spec = specs.turned(specs.LLAMA, scaling=replace(specs.LINEAR, kind="other"))
    (tmp_path / "spec.json").write_text(json.dumps(to_json(spec)), encoding="utf-8")
    assert main(["show", str(tmp_path), "--out", str(tmp_path / "file.py")]) == 2
    assert "scaling" in capsys.readouterr().err
    assert not (tmp_path / "file.py").exists()


GRANITE = {"model_type": "granite", "vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1}
GRANITE |= {"num_attention_heads": 2, "intermediate_size": 12, "residual_multiplier": 0.22}


@pytest.mark.parametrize("words", [("show",), ("inspect", "--prompt", "ab")])
def test_a_config_that_only_answers_for_its_size_is_built_by_no_command(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What its spec does not say would be left out, and nothing would tell."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(GRANITE), encoding="utf-8")
    assert main([words[0], str(config), *words[1:]]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "residual_multiplier" in said.err
    config.write_text(json.dumps(GRANITE | {"residual_multiplier": 1.0}), encoding="utf-8")
    assert main([words[0], str(config), *words[1:]]) == 0
