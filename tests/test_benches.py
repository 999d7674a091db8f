"""The measuring programs: what they ask for, how they compare, and that what was stopped goes on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conftest import ROOT
from plainformer.ledger import Ledger
from plainformer.presets import presets
from plainformer.spec import Spec
from plainformer.training import carry_on
from plainformer.training.peak import step_flops
from plainformer.training.recipe import MUON, Settings
from plainformer.training.schedule import Schedule


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Programs of bench/ by name."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    return SimpleNamespace(of=import_module)


@pytest.fixture
def race(bench: Any) -> ModuleType:
    return bench.of("time_to_loss")


@pytest.fixture
def recipe(bench: Any) -> ModuleType:
    return bench.of("recipe")


# --- results that are kept --------------------------------------------------------------------------------------------


def test_what_was_stopped_goes_on(bench: Any, tmp_path: Path) -> None:
    kept, file = bench.of("measures.kept"), tmp_path / "work" / "results.jsonl"
    asked: list[Any] = []

    def measure(key: tuple[object, ...]) -> float:
        asked.append(key)
        if key == ("c", 0):
            raise RuntimeError("stopped")
        return len(asked) / 2

    keys = [("a", 0), ("b", {"x": 1}), ("c", 0)]
    with pytest.raises(RuntimeError, match="stopped"):
        kept.measure_all(keys, measure, kept.Kept(file))
    file.write_bytes(file.read_bytes()[:-5])  # killed while it wrote the second
    again = kept.Kept(file)
    assert [again.has(key) for key in keys] == [True, False, False]
    asked.clear()
    with pytest.raises(RuntimeError):
        kept.measure_all(keys, measure, again)
    assert asked == keys[1:]
    whole = kept.Kept(file)
    assert (whole.of(("a", 0)), whole.of(("b", {"x": 1}))) == (0.5, 0.5)


# --- time to the loss -------------------------------------------------------------------------------------------------

Times = list[tuple[float, float]]  # seconds and nats of each seed


def results_of(race: Any, points: dict[tuple[str, str], Times]) -> Any:
    return {
        point: [race.Result(seconds, 2 * seconds, nats, 10, 4) for seconds, nats in times]
        for point, times in points.items()
    }


def test_sooner_is_the_first_with_its_loss_and_lower_the_best_in_its_time(race: Any) -> None:
    rival = (race.PUBLISHED, "2000 iterations")
    points = {
        (race.OURS, "short"): [(5.0, 2.0), (6.0, 1.95), (7.0, 2.2)],
        (race.OURS, "enough"): [(10.0, 1.9), (11.0, 1.85), (30.0, 1.7)],
        (race.OURS, "long"): [(50.0, 1.6), (70.0, 1.5), (60.0, 1.7)],
        (race.OURS, "too long"): [(90.0, 1.4), (91.0, 1.4), (92.0, 1.4)],
        rival: [(60.0, 1.9), (66.0, 1.8), (90.0, 2.0)],
    }
    found = race.against(results_of(race, points), rival)
    assert (found.loss, found.seconds) == (1.9, 66.0)
    assert (found.reached, found.sooner) == ("enough", [6.0, 6.0, 3.0])
    assert (found.within, found.lower) == ("long", [1.6, 1.5, 1.7])
    assert "6.00 (3.00 to 6.00) times sooner" in race.sentence(found, "it")
    assert "1.6000 (1.5000 to 1.7000)" in race.sentence(found, "it")


def test_a_rival_that_none_of_ours_reaches_or_precedes_is_said_to_be_one(race: Any) -> None:
    rival = (race.TUNED, "10 iterations")
    found = race.against(results_of(race, {(race.OURS, "slow"): [(9.0, 3.0)], rival: [(1.0, 2.0)]}), rival)
    assert (found.reached, found.sooner, found.within, found.lower) == (None, None, None, None)
    assert "none of ours has that; none of ours is done by then" in race.sentence(found, "it")


def test_the_frontier_has_every_budget_every_default_and_both_of_theirs(race: Any) -> None:
    points = race.ways(Path("clone"), (0.25, 2.0))
    assert [what for name, what in points if name == race.OURS] == ["--minutes 0.25", "--minutes 2", race.DEFAULT]
    published = [what for name, what in points if name == race.PUBLISHED]
    assert published == ["500 iterations", "1000 iterations", "2000 iterations"]
    assert [what for name, what in points if name == race.TUNED][-1] == f"{race.CHOSEN.max_iters} iterations"
    assert {name for name, _ in race.ways(None, (1.0,))} == {race.OURS}


def test_their_recipe_is_asked_for_in_their_readmes_words(bench: Any, race: Any) -> None:
    nanogpt = bench.of("measures.nanogpt")
    assert " ".join(nanogpt.words(nanogpt.RECIPE)) == (
        "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=20 --log_interval=1 "
        "--block_size=64 --batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 "
        "--dropout=0.0"
    )
    half = race.shortened(nanogpt.RECIPE, 0.5)
    assert {name for name in half if half[name] != nanogpt.RECIPE[name]} == {"max_iters", "lr_decay_iters"}
    assert half["max_iters"] == half["lr_decay_iters"] == 1000


def test_tuning_leaves_their_model_alone_and_the_best_found_is_chosen(race: Any) -> None:
    for one in race.SEARCH:
        asked = one.settings(0.5)
        assert all(asked[name] == race.RECIPE[name] for name in ("n_layer", "n_head", "n_embd", "dropout", "compile"))
        assert asked["max_iters"] == asked["lr_decay_iters"] == asked["eval_interval"] == round(one.max_iters / 2)
    assert race.CHOSEN in race.SEARCH
    assert len(set(race.SEARCH)) == len(race.SEARCH)


def test_the_tuning_is_the_best_of_what_was_searched_and_takes_no_longer(race: Any) -> None:
    recipe, better, slow, *_ = race.SEARCH
    found = {
        recipe: race.Result(10.0, 18.0, 1.8, 10, 64),
        better: race.Result(10.9, 18.0, 1.7, 10, 64),
        slow: race.Result(11.1, 18.0, 1.6, 10, 64),
    }
    rows = race.searched(found)
    assert [row["nats a character"] for row in rows] == ["1.6000", "1.7000", "1.8000"]
    assert [row["tuned"] for row in rows] == ["takes too long", "this", ""]
    for path in (ROOT / "docs" / "measured").glob("nanogpt.json"):  # not there before the first search
        chosen = [row for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if row["tuned"] == "this"]
        assert [{**row, **race.told_of(race.CHOSEN)} for row in chosen] == chosen
        assert len(chosen) == 1


def test_the_table_goes_by_time_and_the_picture_shows_every_series(race: Any) -> None:
    points = {
        (race.OURS, "long"): [(50.0, 1.6)],
        (race.OURS, "short"): [(5.0, 2.0)],
        (race.PUBLISHED, "all"): [(60.0, 1.9)],
    }
    rows = race.rows_of(results_of(race, points), (1.0, 4, 1.669))
    assert [row["what"].split(", ")[-1] for row in rows] == ["short", "long", "all", "counting runs of letters"]
    assert rows[-1]["nats a character"] == "1.6690"
    drawn = race.picture(results_of(race, points), 1.669)
    assert all(name in drawn for name in (race.OURS, race.PUBLISHED, "counting runs of letters"))
    assert "prefers-color-scheme:dark" in drawn


def test_counting_is_done_on_what_is_trained_on_and_scored_on_the_rest(race: Any, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("abcabcabd" * 400, encoding="utf-8")
    _, length, nats = race.counted(text)
    assert 1 <= length <= race.LONGEST
    assert nats < 0.2  # after eight letters all is known; after one a third of them is not


# --- throughput -------------------------------------------------------------------------------------------------------


@dataclass
class Config:
    """What a GPT under nanoGPT's names is asked for."""

    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool


class Bare(nn.Module):
    """Modules under the names that they are given."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class StandIn(nn.Module):
    """GPT-2's layout without biases under nanoGPT's names, written for this test. eps: of its norms."""

    eps = 1e-5

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, d = config, config.n_embd

        def linear(n_in: int, n_out: int) -> nn.Linear:
            return nn.Linear(n_in, n_out, bias=False)

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(d, eps=self.eps, bias=False)

        blocks = [
            Bare(
                ln_1=norm(),
                attn=Bare(c_attn=linear(d, 3 * d), c_proj=linear(d, d)),
                ln_2=norm(),
                mlp=Bare(c_fc=linear(d, 4 * d), c_proj=linear(4 * d, d)),
            )
            for _ in range(config.n_layer)
        ]
        tables = {"wte": nn.Embedding(config.vocab_size, d), "wpe": nn.Embedding(config.block_size, d)}
        self.transformer = Bare(**tables, h=nn.ModuleList(blocks), ln_f=norm())
        self.lm_head = linear(d, config.vocab_size)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, x_BT: Tensor, y_BT: Tensor) -> tuple[Tensor, Tensor]:
        t: Any = self.transformer
        x = t.wte(x_BT) + t.wpe(torch.arange(x_BT.shape[1]))
        for block in t.h:
            heads = [
                part.unflatten(-1, (self.config.n_head, -1)).transpose(1, 2)
                for part in block.attn.c_attn(block.ln_1(x)).chunk(3, -1)
            ]
            said = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(-2)
            x = x + block.attn.c_proj(said)
            x = x + block.mlp.c_proj(F.gelu(block.mlp.c_fc(block.ln_2(x))))
        logits = self.lm_head(t.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), y_BT.flatten())

    def configure_optimizers(self, decay: float, lr: float, betas: tuple[float, float], _: str) -> torch.optim.AdamW:
        return torch.optim.AdamW(self.parameters(), lr, betas, weight_decay=decay)


def test_ours_and_theirs_do_the_same_work_or_no_ratio_is_told(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    throughput = bench.of("throughput")
    shape = throughput.Shape(2, 32, 2, 16, 4, 3, 1.0)
    text = tmp_path / "text.txt"
    text.write_text(throughput.made_up(), encoding="utf-8")
    n, taken = throughput.measured(SimpleNamespace(GPT=StandIn, GPTConfig=Config), shape, text, tmp_path / "a", 2)
    assert n == Ledger.of(shape.spec()).total
    exactly, theirs = taken["plainformer, float32"], taken[throughput.NANOGPT]
    assert len(exactly.losses) == 9
    assert len(exactly.seconds) == 2
    assert throughput.apart(exactly, theirs) < 1e-5
    assert theirs.losses[-1] < theirs.losses[0] - 0.01
    rows = throughput.rows_of(shape, n, taken)
    assert [row["over nanoGPT"] for row in rows if row["what"] == throughput.NANOGPT] == ["1.00 (1.00 to 1.00)"]
    assert [row["aimed at"] for row in rows[:2]] == ["-", "1"]
    monkeypatch.setattr(StandIn, "eps", 0.1)
    with pytest.raises(AssertionError, match="not the same work"):
        throughput.measured(SimpleNamespace(GPT=StandIn, GPTConfig=Config), shape, text, tmp_path / "b", 1)


def test_the_ratio_is_their_seconds_over_ours_turn_by_turn(bench: Any) -> None:
    throughput = bench.of("throughput")
    theirs, ours = throughput.Taken([4.0, 9.0], [1.0, 2.0]), throughput.Taken([2.0, 3.0], [1.5, 1.0])
    assert throughput.ratios(theirs, ours) == [2.0, 3.0]
    assert throughput.apart(theirs, ours) == 1.0


def test_the_ways_take_turns_and_the_first_turn_is_not_measured(bench: Any) -> None:
    throughput, order = bench.of("throughput"), []

    def turn(name: str) -> Any:
        return lambda n: order.append(name) or [0.0] * n

    taken = throughput.in_turns({"a": turn("a"), "b": turn("b")}, n_turns=2, n_steps=3)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert {name: (len(some.seconds), len(some.losses)) for name, some in taken.items()} == {"a": (2, 9), "b": (2, 9)}


# --- the recipe -------------------------------------------------------------------------------------------------------


def decided() -> tuple[Spec, Settings]:
    """The recipe at a small size."""
    spec = presets.trainable("small", vocab_size=20, d_model=32, n_layers=2, n_heads=2, max_seq_len=32)
    settings = Settings(
        preset="small",
        tokenizer="characters",
        validation=0.1,
        initial=MUON.initial,
        rates=MUON.rates,
        schedule=Schedule(shape=MUON.shape, steps=100, warmup=MUON.warmup, decay_from=int(MUON.steady * 100)),
        clip=MUON.clip,
        context=32,
        batch_size=16,
        micro_batch=16,
        steps=100,
        seed=0,
        dtype="bfloat16",
        fused=True,
        threads=1,
        eval_every=100,
        save_every=100,
    )
    return spec, settings


def test_every_other_is_another_with_as_many_tokens_or_operations(recipe: Any) -> None:
    was = decided()
    for (what, name), other in recipe.OTHERS.items():
        spec, settings = other.change(*was)
        arithmetic = what in ("Newton-Schulz steps", "z-loss")
        assert ((spec, settings) == was) == (arithmetic or what == recipe.RECIPE), (what, name)
        if "as many operations" in what:
            done, asked = (settings.steps * step_flops(spec, settings), 100 * step_flops(*was))
            assert done == pytest.approx(asked, rel=0.5 / settings.steps + 1e-9), (what, name)
        else:
            assert settings.steps * settings.batch_size * settings.context == 100 * 16 * 32, (what, name)
        assert settings.schedule.steps == settings.steps == settings.eval_every
        assert spec.max_seq_len == settings.context
        assert settings.micro_batch == settings.batch_size


def test_an_ungated_feed_forward_has_as_many_weights(recipe: Any) -> None:
    was = presets.trainable("small", vocab_size=20, d_model=192, n_layers=1, n_heads=2)
    for name in ("squared ReLU, as many weights",):
        spec, _ = recipe.OTHERS["feed-forward", name].change(was, decided()[1])
        assert Ledger.of(spec).total == Ledger.of(was).total
        assert not any(".gate." in w.name for w in Ledger.of(spec).weights)


def test_a_choice_is_trained_without_it_and_what_changes_nothing_is_no_run(recipe: Any, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{i * i} is the square of {i}. " for i in range(400)), encoding="utf-8")
    asked = {**recipe.SMALL, "steps": 10, "seed": 0, "dtype": "float32"}
    tried = {
        other: recipe.measured(text, tmp_path / str(i), recipe.OTHERS[other], asked)
        for i, other in enumerate([(recipe.RECIPE, ""), ("Newton-Schulz steps", "3"), ("z-loss", f"{recipe.Z:g}")])
    }
    losses = [one["nats"] for one in tried.values()]
    assert len(set(losses)) == 3
    assert all(0 < nats < math.log(30) for nats in losses)
    assert carry_on(tmp_path / "0", quiet=True).ending == "nothing to do"
    assert recipe.measured(text, tmp_path / "same", recipe.settings(dtype="float32"), asked) is None


def test_differences_are_seed_by_seed_and_of_searched_rates_the_best_is_told(recipe: Any) -> None:
    _, settings = decided()
    base = [
        {"nats": nats, "processor_seconds": 2.0, "settings": json.loads(json.dumps(settings.to_json()))}
        for nats in (1.5, 1.6)
    ]
    results = {
        other: [one | {"nats": one["nats"] + 0.25, "processor_seconds": 3.0} for one in base] for other in recipe.OTHERS
    }
    results[recipe.RECIPE, ""] = base
    names = list(recipe.CHOICES[0].others)
    results[recipe.CHOICES[0].what, names[1]] = [replace_nats(one, 0.125) for one in base]
    results["products", "float32"] = []
    results["z-loss", f"{recipe.Z:g}"] = [replace_nats(base[0], -0.25), replace_nats(base[1], 0.0)]
    rows = recipe.rows_of(results)
    assert rows[0]["in its place"] == f"{names[1]} (best of 3 rates)"
    assert rows[0]["without, more"] == "+0.1250 (+0.1250 to +0.1250)"
    assert rows[-1]["without, more"] == "-0.1250 (-0.2500 to +0.0000)"
    assert rows[1]["processor's time, of the recipe's"] == "1.50"
    assert rows[0]["the recipe"] == f"Muon, {MUON.rates.matrices:g}"
    assert len(rows) == len(recipe.OTHERS) - 1 - 2 - 1  # the recipe itself; two rates that were worse; what is the same
    by_what = {row["what"]: row["the recipe"] for row in rows}
    assert by_what["context, as many tokens a step"] == "32"
    assert by_what["steps before the decay"] == "40"


def replace_nats(one: dict[str, Any], more: float) -> dict[str, Any]:
    return one | {"nats": one["nats"] + more}
