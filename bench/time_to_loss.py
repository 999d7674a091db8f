"""Loss against seconds of the whole process: ours, nanoGPT as published, nanoGPT as tuned here, and counting."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from measures import ROOT, Row, load, spread, tell
from measures.kept import Kept, Key, measure_all
from measures.nanogpt import RECIPE, Settings, train
from measures.runs import Result, told, trained

from plainformer.lessons.ngrams import surprisal_by_counts
from plainformer.measuring.texts import text_of
from plainformer.report.svg import line_chart

OURS, PUBLISHED, TUNED, COUNTS = "plainformer train", "nanoGPT, its recipe for CPUs", "nanoGPT, tuned", "counting"
DEFAULT = "every default"
BUDGETS = (0.1, 0.2, 0.4, 0.8, 1.6)  # minutes asked for; what they take is measured
SHARES = (0.25, 0.5, 1.0)  # of their iterations, the rate's decay with them
SOONER, LOWER = 6.0, 1.55  # aimed at: their loss so many times sooner; this loss in their time
LONGEST = 6  # letters before, when counting


@dataclass(frozen=True)
class Tuning:
    """What was searched: nanoGPT's own flags, its model and code left as they are."""

    batch_size: int
    block_size: int
    max_iters: int
    learning_rate: float
    beta2: float = 0.99
    warmup_iters: int = 100
    last: float = 0.1  # of the rate

    def settings(self, share: float = 1.0) -> Settings:
        """Their recipe with these in its place, and one evaluation at the end in place of eight on the way."""
        n = round(self.max_iters * share)
        return {
            **RECIPE,
            "batch_size": self.batch_size,
            "block_size": self.block_size,
            "max_iters": n,
            "lr_decay_iters": n,
            "eval_interval": n,
            "learning_rate": self.learning_rate,
            "min_lr": self.learning_rate * self.last,
            "beta2": self.beta2,
            "warmup_iters": self.warmup_iters,
        }


# CHOSEN has the lowest loss of those that take about as long as the first, which is their recipe, by `--search`.
LONGER = 1.1
CHOSEN = Tuning(12, 64, 2000, 4e-3)
SEARCH = (
    Tuning(12, 64, 2000, 1e-3),
    CHOSEN,
    Tuning(12, 64, 2000, 4e-3, warmup_iters=50, last=0.0),
    Tuning(12, 64, 2000, 8e-3),
    Tuning(12, 64, 2000, 6e-3, warmup_iters=50, last=0.0),
    Tuning(12, 64, 2000, 4e-3, beta2=0.95, warmup_iters=50, last=0.0),
    Tuning(8, 64, 2600, 4e-3, warmup_iters=50, last=0.0),
    Tuning(6, 64, 3100, 4e-3, warmup_iters=50, last=0.0),
    Tuning(24, 64, 1180, 6e-3, warmup_iters=50, last=0.0),
    Tuning(4, 128, 2550, 4e-3, warmup_iters=50, last=0.0),
    Tuning(6, 128, 1950, 4e-3, warmup_iters=50, last=0.0),
    Tuning(8, 128, 1580, 4e-3, warmup_iters=50, last=0.0),
    Tuning(12, 128, 1120, 6e-3, warmup_iters=50, last=0.0),
)


def ours(words: Sequence[str], text: Path, folder: Path, seed: int) -> Result:
    return trained(text, folder, seed, words)


def theirs(settings: Settings, clone: Path, text: Path, folder: Path, seed: int) -> Result:
    return train(clone, text, folder, seed, settings)


Way = Callable[[Path, Path, int], Result]  # text, an empty folder, seed
Point = tuple[str, str]  # of which series, and what was asked for


def shortened(settings: Settings, share: float) -> Settings:
    """The recipe with fewer iterations, its rate decayed over them."""
    n = round(int(str(settings["max_iters"])) * share)
    return {**settings, "max_iters": n, "lr_decay_iters": n}


def ways(clone: Path | None, budgets: Sequence[float]) -> dict[Point, Way]:
    """Every point of the frontier."""
    found: dict[Point, Way] = {
        (OURS, f"--minutes {minutes:g}"): partial(ours, ["--minutes", f"{minutes:g}"]) for minutes in budgets
    }
    found[OURS, DEFAULT] = partial(ours, [])
    if clone is not None:
        for name, settings in (
            (PUBLISHED, [shortened(RECIPE, share) for share in SHARES]),
            (TUNED, [CHOSEN.settings(share) for share in SHARES]),
        ):
            for one in settings:
                found[name, f"{one['max_iters']} iterations"] = partial(theirs, one, clone)
    return found


Results = Mapping[Point, Sequence[Result]]  # a result a seed


def middle(some: Sequence[Result], what: str) -> float:
    return float(median(getattr(one, what) for one in some))


@dataclass(frozen=True)
class Against:
    """Ours beside one of theirs. None: no point of ours does it."""

    loss: float
    seconds: float
    reached: str | None  # what was asked of ours that first has their loss
    sooner: list[float] | None  # their seconds over its seconds, seed by seed
    within: str | None  # what was asked of ours that has the lowest loss in their time
    lower: list[float] | None  # its losses


def against(results: Results, rival: Point) -> Against:
    """How much sooner ours has their loss, and what ours has in their time, both by medians."""
    own = {what: some for (name, what), some in results.items() if name == OURS}
    loss, seconds = middle(results[rival], "nats"), middle(results[rival], "seconds")
    good = [what for what in own if middle(own[what], "nats") <= loss]
    soon = [what for what in own if middle(own[what], "seconds") <= seconds]
    first = min(good, key=lambda what: middle(own[what], "seconds"), default=None)
    best = min(soon, key=lambda what: middle(own[what], "nats"), default=None)
    ratios = None
    if first is not None:
        pairs = zip(results[rival], own[first], strict=True)
        ratios = [their.seconds / our.seconds for their, our in pairs]
    return Against(loss, seconds, first, ratios, best, [one.nats for one in own[best]] if best is not None else None)


def sentence(found: Against, name: str) -> str:
    """The answer in words."""
    said = f"{name} has {found.loss:.4f} in {found.seconds:.1f} s: "
    if found.sooner is None:
        said += "none of ours has that; "
    else:
        said += f"ours ({found.reached}) {spread(found.sooner, 2)} times sooner; "
    return said + (
        "none of ours is done by then."
        if found.lower is None
        else f"in its time ours ({found.within}) has {spread(found.lower, 4)}."
    )


def counted(text: Path) -> tuple[float, int, float]:
    """(seconds, letters before, nats a character) of the best that counting runs of letters predicts."""
    begun = perf_counter()
    whole = text_of(text)
    each = surprisal_by_counts(whole.train_N, whole.valid_N, len(whole.letters), LONGEST)
    nats, length = min((float(nats_N.mean()), length) for length, nats_N in enumerate(each))
    return perf_counter() - begun, length, nats


def rows_of(results: Results, counts: tuple[float, int, float]) -> list[Row]:
    """The table: every point, by its seconds within its series; then counting."""
    seconds, length, nats = counts
    series = list(dict.fromkeys(name for name, _ in results))
    order = sorted(results, key=lambda point: (series.index(point[0]), middle(results[point], "seconds")))
    rows = [told(", ".join(point), results[point]) for point in order]
    last = (f"{COUNTS} runs of letters", "-", length, f"{seconds:.1f}", "-", f"{nats:.4f}")
    return [*rows, dict(zip(rows[0], last, strict=True))]


def picture(results: Results, nats: float) -> str:
    """The frontier: a line a series, medians; counting as a level."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for (name, _), some in results.items():
        lines.setdefault(name, []).append((middle(some, "seconds"), middle(some, "nats")))
    seconds = [x for points in lines.values() for x, _ in points]
    series = {name: sorted(points) for name, points in lines.items()}
    series["counting runs of letters"] = [(min(seconds), nats), (max(seconds), nats)]
    return line_chart(series, "Loss against time", "seconds, from start to end", "nats a character")


def told_of(one: Tuning) -> Row:
    """A setting, for a table."""
    return {
        "rows a step": one.batch_size,
        "context": one.block_size,
        "steps": one.max_iters,
        "rate": f"{one.learning_rate:g}, then {one.learning_rate * one.last:g}",
        "beta2": one.beta2,
        "warm-up": one.warmup_iters,
    }


def in_time(found: Mapping[Tuning, Result], one: Tuning) -> bool:
    """Whether a setting takes about as long as their recipe at most."""
    return found[one].seconds <= LONGER * found[SEARCH[0]].seconds


def best_of(found: Mapping[Tuning, Result]) -> Tuning:
    return min((one for one in found if in_time(found, one)), key=lambda one: found[one].nats)


def searched(found: Mapping[Tuning, Result]) -> list[Row]:
    """The lowest loss first."""
    return [
        told_of(one)
        | {
            "seconds, start to end": f"{found[one].seconds:.1f}",
            "of all cores": f"{found[one].processor_seconds:.1f}",
            "nats a character": f"{found[one].nats:.4f}",
            "tuned": "this" if one == best_of(found) else "" if in_time(found, one) else "takes too long",
        }
        for one in sorted(found, key=lambda one: found[one].nats)
    ]


def search(clone: Path, text: Path, kept: Kept, save: bool) -> None:
    """Every setting of SEARCH, one seed each."""
    before, asked = load(), {json.dumps(vars(one)): one for one in SEARCH}

    def measure(key: Key) -> object:
        with TemporaryDirectory() as folder:
            return train(clone, text, Path(folder), 0, asked[str(key[1])].settings())

    keys: dict[Tuning, Key] = {one: ("search", said, digest(text)) for said, one in asked.items()}
    measure_all(list(keys.values()), measure, kept)
    found = {one: Result(*kept.of(key)) for one, key in keys.items()}
    note = "nanoGPT's own train.py, code and model unchanged, by its flags alone; seed 0."
    command = "python bench/time_to_loss.py TEXT --nanogpt CLONE --search --save"
    tell("nanogpt", command, searched(found), note, before, save, seeds=[0])
    if (best := best_of(found)) != CHOSEN:
        print(f"the best is {best}, and not what this file calls CHOSEN", file=sys.stderr)


def digest(text: Path) -> str:
    return hashlib.sha256(text.read_bytes()).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--nanogpt", type=Path, metavar="CLONE", help="a clone of nanoGPT (it is copied, not changed)")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 to N - 1 (5)")
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS, metavar="M", help="minutes asked of ours")
    parser.add_argument("--search", action="store_true", help="search nanoGPT's settings in place of all else")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep each result there, and go on with those kept")
    parser.add_argument("--save", action="store_true", help="keep table and picture in docs")
    args = parser.parse_args()
    before, text = load(), args.text.resolve()
    kept = Kept(args.work / "time_to_loss.jsonl" if args.work else None)
    if args.search:
        if args.nanogpt is None:
            parser.error("--search needs --nanogpt CLONE")
        search(args.nanogpt.resolve(), text, kept, args.save)
        return
    points = ways(args.nanogpt.resolve() if args.nanogpt else None, args.budgets)
    seeds, mark = range(args.seeds), digest(text)

    def measure(key: Key) -> object:
        with TemporaryDirectory() as folder:
            return points[str(key[0]), str(key[1])](text, Path(folder), int(str(key[2])))

    # In turns, so that a slow hour is everybody's.
    measure_all([(*point, seed, mark) for seed in seeds for point in points], measure, kept)
    results = {point: [Result(*kept.of((*point, seed, mark))) for seed in seeds] for point in points}
    rivals = [[point for point in results if point[0] == name][-1:] for name in (PUBLISHED, TUNED)]
    beside = {point[0]: against(results, point) for some in rivals for point in some}
    counts = counted(text)
    answers = " ".join(sentence(found, name) for name, found in beside.items())
    note = (
        f"Median of {args.seeds} seeds; in brackets the least and the most. From a process's start to its end; all "
        "ways in turns. The loss is over the whole validation part (the last tenth), in side-by-side blocks of "
        f"the model's own context, each target once. {answers}"
    )
    facts: dict[str, Any] = {
        "runs": {", ".join(point): [one._asdict() for one in some] for point, some in results.items()},
        "seeds": list(seeds),
        "goals": {"sooner": SOONER, "loss": LOWER},
        "against": {name: vars(found) for name, found in beside.items()},
    }
    budgets = " ".join(f"{minutes:g}" for minutes in args.budgets)
    asked = f"--seeds {args.seeds} --budgets {budgets}" + " --nanogpt CLONE" * (args.nanogpt is not None)
    command = f"python bench/time_to_loss.py TEXT {asked} --save"
    tell("time_to_loss", command, rows_of(results, counts), note, before, args.save, **facts)
    if args.save:
        to = ROOT / "docs" / "pictures" / "time-to-loss.svg"
        to.write_text(picture(results, counts[2]), encoding="utf-8")
        print("kept: docs/pictures/time-to-loss.svg")


if __name__ == "__main__":
    main()
