"""Adapters in peft's form: names as peft 0.21 writes them, numbers as transformers merges them, and back."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import plainformer as pf
from plainformer.adapters import merge
from plainformer.checkpoint.patterns import ends_with, readable
from plainformer.checkpoint.peft import BEFORE, CONFIG, WEIGHTS, load_adapters, pattern_faults, patterned, save_adapters
from plainformer.conventions import with_lora
from plainformer.faults import PlainformerError
from plainformer.model import Transformer
from plainformer.spec import Linear
from plainformer.tree import walk
from strangers import STRANGERS, VOCAB, made

TARGETS = {
    "llama": ("q_proj", "v_proj", "down_proj"),
    "gpt2": ("c_attn", "c_fc"),
    "gpt_neox": ("query_key_value", "dense_h_to_4h"),
    "phi3": ("qkv_proj", "gate_up_proj", "o_proj"),
    "qwen3": ("q_proj", "lm_head"),
}
TYPES = {which: STRANGERS[which].name for which in TARGETS}
RECORDED = {  # what peft 0.21 keeps of a model of each, adapted as above: the first module's tensors
    "llama": {
        "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight": (3, 40),
        "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight": (24, 3),
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": (3, 24),
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight": (32, 3),
    },
    "gpt2": {
        "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight": (3, 24),
        "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight": (72, 3),
    },
}


def refusal(ask: Any) -> str:
    with pytest.raises(PlainformerError) as caught:
        ask()
    return str(caught.value)


def linears(model: nn.Module, targets: tuple[str, ...]) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if name.endswith(targets)}


def adapted(which: str, folder: Path, rank: int = 3, **keys: Any) -> tuple[nn.Module, float]:
    """A stranger's folder, adapters for it in peft's form, and the stranger with the adapters in its weights."""
    model = made(STRANGERS[which])
    model.save_pretrained(folder / "base")
    generator, out = torch.Generator().manual_seed(4), dict[str, Tensor]()
    said = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 5,
        "target_modules": list(TARGETS[which]),
        "bias": "none",
    } | keys
    scale = 5 / rank**0.5 if keys.get("use_rslora") else 5 / rank
    for name, module in linears(model, TARGETS[which]).items():
        turned = type(module).__name__ == "Conv1D"
        n_out, n_in = module.weight.shape[::-1] if turned else module.weight.shape
        a, b = (torch.randn(shape, generator=generator) * 0.3 for shape in ((rank, n_in), (n_out, rank)))
        out |= {f"{BEFORE}{name}.lora_A.weight": a, f"{BEFORE}{name}.lora_B.weight": b}
        with torch.no_grad():
            change = scale * (b @ a)
            module.weight = nn.Parameter(module.weight + (change.T if turned else change))
    (folder / "adapters").mkdir()
    save_file(out, folder / "adapters" / WEIGHTS)
    (folder / "adapters" / CONFIG).write_text(json.dumps(said), encoding="utf-8")
    return model, scale


def family(which: str) -> str:
    return made(STRANGERS[which]).config.model_type


@torch.no_grad()
def close(ours: Transformer, theirs: nn.Module) -> None:
    tokens_BT = torch.randint(0, VOCAB, (2, 11), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours(tokens_BT), theirs(tokens_BT).logits, rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize("stable", [False, True], ids=["alpha/r", "alpha/sqrt(r)"])
@pytest.mark.parametrize("which", TARGETS)
def test_adapters_say_what_they_say_in_the_weights(which: str, stable: bool, tmp_path: Path) -> None:
    theirs, _ = adapted(which, tmp_path, use_rslora=stable)
    base = pf.load(tmp_path / "base")
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    mine = load_adapters(base, tmp_path / "adapters", family(which))
    close(mine, theirs)
    close(merge(mine), theirs)
    assert all(torch.equal(tensor, before[name]) for name, tensor in base.state_dict().items())


@pytest.mark.parametrize("which", TARGETS)
def test_adapters_come_out_as_they_went_in(which: str, tmp_path: Path) -> None:
    adapted(which, tmp_path)
    mine = load_adapters(pf.load(tmp_path / "base"), tmp_path / "adapters", family(which))
    save_adapters(mine, tmp_path / "out", family(which), base="base")
    first, second = (load_file(tmp_path / name / WEIGHTS) for name in ("adapters", "out"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    said = json.loads((tmp_path / "out" / CONFIG).read_text())
    assert (said["r"], said["lora_alpha"], said["base_model_name_or_path"]) == (3, 5, "base")
    assert said["fan_in_fan_out"] == (which == "gpt2")


@pytest.mark.parametrize("which", ["gpt2", "gpt_neox", "phi3", "llama"])
def test_adapters_of_our_own_stand_in_one_matrix_of_theirs(which: str, tmp_path: Path) -> None:
    """Queries and values have factors of their own, keys none: one pair of blocks there, the same logits."""
    made(STRANGERS[which]).save_pretrained(tmp_path / "base")
    base = pf.load(tmp_path / "base")
    spec = with_lora(base.spec, 2, alpha=3.0, targets=("attention.q", "attention.v", "feed_forward.up"))
    mine = Transformer(spec, initial=None).eval()
    state, generator = base.state_dict(), torch.Generator().manual_seed(2)
    for name, tensor in mine.state_dict().items():
        tensor.copy_(state[name] if name in state else torch.randn(tensor.shape, generator=generator) * 0.3)
    save_adapters(mine, tmp_path / "out", family(which))
    again = load_adapters(base, tmp_path / "out", family(which))
    tokens_BT = torch.randint(0, VOCAB, (2, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(again(tokens_BT), mine(tokens_BT), rtol=2e-5, atol=2e-5)
        assert (mine(tokens_BT) - base(tokens_BT)).abs().max() > 0.1


@pytest.mark.parametrize("which", RECORDED)
def test_names_and_shapes_are_those_that_peft_writes(which: str, tmp_path: Path) -> None:
    adapted(which, tmp_path)
    mine = load_adapters(pf.load(tmp_path / "base"), tmp_path / "adapters", family(which))
    save_adapters(mine, tmp_path / "out", family(which))
    shapes = {name: tuple(tensor.shape) for name, tensor in load_file(tmp_path / "out" / WEIGHTS).items()}
    assert RECORDED[which].items() <= shapes.items()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # of peft beside newer transformers
@pytest.mark.parametrize("which", TARGETS)
def test_peft_itself_opens_ours_and_we_open_its(which: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="the peft package is absent")
    merged, _ = adapted(which, tmp_path)
    mine = load_adapters(pf.load(tmp_path / "base"), tmp_path / "adapters", family(which))
    save_adapters(mine, tmp_path / "ours", family(which), base=str(tmp_path / "base"))
    base = type(merged).from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "ours").eval()
    close(mine, theirs)
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=list(TARGETS[which]), init_lora_weights=False)
    fresh = peft.get_peft_model(type(merged).from_pretrained(tmp_path / "base"), config).eval()
    fresh.save_pretrained(tmp_path / "theirs")
    close(load_adapters(pf.load(tmp_path / "base"), tmp_path / "theirs", family(which)), fresh)


def test_a_folder_of_adapters_loads_onto_the_base_that_it_names(tmp_path: Path) -> None:
    theirs, _ = adapted("llama", tmp_path, base_model_name_or_path=str(tmp_path / "base"))
    close(pf.load(tmp_path / "adapters"), theirs)
    said = json.loads((tmp_path / "adapters" / CONFIG).read_text()) | {"base_model_name_or_path": "someone/somewhere"}
    (tmp_path / "adapters" / CONFIG).write_text(json.dumps(said))
    assert "someone/somewhere" in refusal(lambda: pf.load(tmp_path / "adapters"))


def test_ranks_and_alphas_of_single_modules(tmp_path: Path) -> None:
    adapted("llama", tmp_path, alpha_pattern={"down_proj": 7}, rank_pattern={"down_proj": 3})
    mine = load_adapters(pf.load(tmp_path / "base"), tmp_path / "adapters", "llama")
    alphas = {part.lora.alpha for _, part in walk(mine.spec) if isinstance(part, Linear) and part.lora}
    assert alphas == {5.0, 7.0}
    said = json.loads((tmp_path / "adapters" / CONFIG).read_text())
    patterns = {"alpha_pattern": {r"layers\.0\..*": 9}, "rank_pattern": {"(down|no)_proj": 3}}  # as peft reads them
    (tmp_path / "adapters" / CONFIG).write_text(json.dumps(said | patterns))
    mine = load_adapters(pf.load(tmp_path / "base"), tmp_path / "adapters", "llama")
    first = {part.lora.alpha for _, part in walk(mine.spec.decoder.layers[0]) if isinstance(part, Linear) and part.lora}
    assert first == {9.0}


HOSTILE = {  # each takes Python's own matcher longer than anybody waits; and whether it is of a form that is read
    "a repeat of a repeat": ({"([a-z0-9._]+)+Z": 2}, False),
    "alternatives that are alike": ({"(.|.)" * 40 + "Z": 2}, True),
    "many repeats": ({".*" * 1000 + "Z": 2}, True),
    "a name said back": ({r"(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)\1Z": 2}, False),
    "many repeats that are counted": ({".{0,999}" * 600 + "Z": 2}, True),
    "a pattern of a megabyte": ({"a?" * 500_000: 2}, False),
    "a name of a megabyte": ({"a" * 1_000_000: 2}, False),
    "many patterns": ({f".*.*{i}Z": 2 for i in range(100_000)}, False),
    "many names": ({f"q.{i}": 2 for i in range(100_000)}, False),
}


@pytest.mark.parametrize("which", HOSTILE)
def test_a_hostile_pattern_of_names_is_refused_or_matched_within_two_seconds(which: str, tmp_path: Path) -> None:
    patterns, is_read = HOSTILE[which]
    adapted("llama", tmp_path, rank_pattern=patterns)
    base = pf.load(tmp_path / "base")
    start = time.perf_counter()
    if is_read:  # and takes none of the names
        load_adapters(base, tmp_path / "adapters", "llama")
    else:
        said = refusal(lambda: load_adapters(base, tmp_path / "adapters", "llama"))
        assert f"{CONFIG}: rank_pattern" in said
        assert len(said) < 1000
    assert time.perf_counter() - start < 2


def test_a_pattern_takes_the_names_that_python_s_own_matcher_takes() -> None:
    draw, n_taken = random.Random(0), 0
    signs = [*"ab.()|*+?^$[]-1", "\\.", r"\d", "[ab]", "[^a]", "(?:", ".*", "(a|b)", "[a-b.]"]
    signs += ["{2}", "{1,2}", "{0,}", "{0,1}?", "{2,1}", r"[\d.]", r"[^\w-]", r"\S", r"\-"]
    for _ in range(10_000):
        pattern = "".join(draw.choices(signs, k=draw.randrange(1, 8)))
        name = "".join(draw.choices("ab.1_", k=draw.randrange(8)))
        if readable(pattern):
            theirs = re.match(rf"(.*\.)?({pattern})$", name) is not None
            assert ends_with(name, pattern) == theirs, (pattern, name)
            n_taken += theirs
    assert n_taken > 300


@pytest.mark.parametrize(
    "pattern",
    [
        "q_proj",
        "^model.layers.0.self_attn.q_proj",
        r"model\.layers\.(\d+)\..*",
        "(down|[kq])_proj",
        "([0-9]|1[0-5])\\..*",
        "model.layers.0.self_attn.q_proj$",
        r"^model\.layers\.0\.self_attn\.q_proj$",
        r"layers\.\d{1,2}\..*",
        r"layers\.[\d]+\.self_attn\.q_proj",
        r"[^\W\d]{5}\.\S{3,}?q_proj",
    ],
)
def test_patterns_as_people_write_them_are_read(pattern: str) -> None:
    name = "model.layers.0.self_attn.q_proj"
    assert readable(pattern)
    assert ends_with(name, pattern)
    assert not ends_with(name.replace("0", "20").replace("q_", "v_"), pattern) or ".*" in pattern


@pytest.mark.parametrize("form", ["^{}", "{}$", "escaped"])
def test_a_large_model_may_have_a_pattern_for_each_of_its_modules(form: str) -> None:
    """As peft itself says to name one module and no other."""
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj")
    names = [f"model.layers.{i}.{part}" for i in range(80) for part in (*parts, "mlp.up_proj", "mlp.down_proj")]
    patterns = {re.escape(name) if form == "escaped" else form.format(name): i for i, name in enumerate(names)}
    assert list(pattern_faults(Path(CONFIG), "rank_pattern", patterns)) == []
    start = time.perf_counter()
    assert [patterned({"rank_pattern": patterns}, "rank_pattern", name, 0) for name in names] == list(range(len(names)))
    assert time.perf_counter() - start < 2


def test_what_is_no_plain_lora_of_this_model_is_refused_by_name(tmp_path: Path) -> None:
    adapted("llama", tmp_path)
    base, folder = pf.load(tmp_path / "base"), tmp_path / "adapters"
    said, held = json.loads((folder / CONFIG).read_text()), load_file(folder / WEIGHTS)
    q = f"{BEFORE}model.layers.0.self_attn.q_proj.lora_A.weight"
    for keys, must in (
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "LOHA"}, "peft_type = 'LOHA'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"r": "many"}, f"{CONFIG}: r = 'many'"),
        ({"r": said["r"] + 1}, f"{CONFIG} says {said['r'] + 1}"),
        ({"rank_pattern": {".*": 2}}, f"{CONFIG} says 2"),
        ({"rank_pattern": {"(": 2}}, "is no pattern of names"),
        ({"alpha_pattern": [1]}, "must be an object"),
        ({"alpha_pattern": {"q_proj": "1"}}, "must be a finite number"),
        ({"lora_alpha": float("inf")}, "must be a finite number"),
        ({"lora_alpha": 10**400}, "must be a finite number"),
        ({"alpha_pattern": {"q_proj": 10**400}}, "must be a finite number"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
    ):
        (folder / CONFIG).write_text(json.dumps(said | keys))
        assert must in refusal(lambda: load_adapters(base, folder, "llama"))
    (folder / CONFIG).write_text(json.dumps(said))
    for change, must in (
        ({q: torch.zeros(3, 25)}, "q_proj = "),
        ({q: torch.zeros(0, 24), q.replace("lora_A", "lora_B"): torch.zeros(32, 0)}, "a rank of at least 1"),
        ({q: held[q].long()}, "must be floating-point numbers"),
        ({q.replace("layers.0", "layers.7"): torch.zeros(3, 24)}, "layers.7"),
        ({f"{BEFORE}model.embed_tokens.lora_embedding_A": torch.zeros(3, 5)}, "lora_embedding_A"),
    ):
        save_file(held | change, folder / WEIGHTS)
        assert must in refusal(lambda: load_adapters(base, folder, "llama"))
    (folder / WEIGHTS).unlink()
    assert WEIGHTS in refusal(lambda: load_adapters(base, folder, "llama"))
    assert "there are none" in refusal(lambda: save_adapters(base, tmp_path / "none", "llama"))
