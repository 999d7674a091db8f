"""--minutes: which shape is trained, for how many steps, and how often it is evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plainformer.spec import Spec
from plainformer.training import choosing, forecast, start
from plainformer.training.choosing import RUNGS
from plainformer.training.peak import step_flops
from plainformer.training.recipe import Settings


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings and sizes of a run on a machine of so many operations a second, whose clock stands still."""
    text = tmp_path / "text.txt"
    text.write_text("a stitch in time saves nine. " * 3000, encoding="utf-8")

    def choose(minutes: float, speed: float, evaluation: float = 1.0, **asked: Any) -> tuple[Settings, dict[str, Any]]:
        def timed(spec: Spec, settings: Settings, *_: Any, **__: Any) -> tuple[float, float]:
            return step_flops(spec, settings) / speed, evaluation

        for module in (choosing, forecast):
            monkeypatch.setattr(module, "seconds_a_step", timed)
        monkeypatch.setattr(choosing.time, "monotonic", lambda: 0.0)
        folder = start(
            [text], tmp_path / f"run-{len(list(tmp_path.iterdir()))}", {"minutes": minutes, **asked}, begun=0
        )
        kept = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        sizes = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        return Settings.from_json(kept["settings"]), sizes | {"asked": kept["asked"], "planned": kept["planned"]}

    return choose


def n_layers(sizes: dict[str, Any]) -> int:
    return len(sizes["encoder"]["layers"] if sizes.get("encoder") else sizes["decoder"]["layers"])


def test_little_time_goes_into_the_small_shape_and_much_into_the_large(chosen: Any) -> None:
    for speed, rung in ((2e9, RUNGS[0]), (1e12, RUNGS[-1])):
        settings, sizes = chosen(1, speed)
        assert (n_layers(sizes), settings.context, settings.batch_size) == tuple(
            rung.sizes[name] for name in ("n_layers", "context", "batch_size")
        )
        assert settings.steps >= rung.least_steps
        assert settings.schedule.steps == settings.steps
        assert sizes["asked"] == {"minutes": 1}


def test_twice_the_time_is_twice_the_steps(chosen: Any) -> None:
    sizes = {"n_layers": 1, "d_model": 32, "n_heads": 2, "context": 32}
    one, two = (chosen(minutes, 1e9, evaluation=0.0, **sizes)[0].steps for minutes in (1, 2))
    assert two == pytest.approx(2 * one, rel=0.01)


def test_what_was_asked_for_is_not_chosen(chosen: Any) -> None:
    settings, sizes = chosen(1, 1e12, n_layers=2, context=32)
    assert (n_layers(sizes), settings.context) == (2, 32)
    settings, sizes = chosen(1, 1e12, preset="tiny")
    assert (n_layers(sizes), settings.context) == (2, 64)


def test_evaluations_take_a_small_part_of_the_time(chosen: Any) -> None:
    rare, often = chosen(1, 1e10, evaluation=5.0)[0], chosen(1, 1e10, evaluation=0.01)[0]
    assert rare.eval_every == rare.steps
    assert often.eval_every == -(-often.steps // choosing.MOST_EVALUATIONS)
    assert chosen(2, 1e10, evaluation=0.01, eval_every=3)[0].eval_every == 3


@pytest.mark.parametrize("every", [1, 7, 10_000])
def test_evaluations_that_are_asked_for_are_counted_into_the_time(chosen: Any, every: int) -> None:
    settings, sizes = chosen(1, 1e10, evaluation=0.5, n_layers=1, d_model=32, n_heads=2, context=32, eval_every=every)
    planned = sizes["planned"]["seconds"]
    assert settings.eval_every == every
    assert planned <= 60 * (1 - choosing.SPARE)
    assert planned == pytest.approx(60 * (1 - choosing.SPARE), abs=1.1)  # an evaluation and a step


def test_a_moment_is_one_step(chosen: Any) -> None:
    assert chosen(1e-6, 1e9)[0].steps == 1
