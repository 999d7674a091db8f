"""Tokens a second of generation: with and without the cache, against a bare loop of the model, and of many rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import perf_counter

import torch

from plainformer.generation import generate
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.states import State


@torch.inference_mode()
def bare(model: Transformer, prompt: list[int], n_new: int) -> list[int]:
    """The least that decoding can be: the model on the newest token, its best token next."""
    state = State(1, len(prompt) + n_new)
    logits = model(torch.tensor([prompt]), state)
    tokens = []
    for _ in range(n_new):
        token = logits[:, -1:].argmax(-1)
        tokens.append(int(token))
        if len(tokens) < n_new:
            logits = model(token, state)
    return tokens


def best_seconds(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The fastest of several, each way in turn: what disturbs the machine disturbs them alike."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, work in ways.items():
            started = perf_counter()
            work()
            times[name].append(perf_counter() - started)
    return {name: min(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--new", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, prompt, n = Transformer(presets[args.preset]), list(range(16)), args.new

    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "bare loop, best token": (1, lambda: bare(model, prompt, n)),
        "generate, best token": (1, lambda: generate(model, prompt, n, temperature=0)),
        "generate, temperature 0.8": (1, lambda: generate(model, prompt, n, temperature=0.8)),
        "generate, top_k 50 and top_p 0.9": (1, lambda: generate(model, prompt, n, top_k=50, top_p=0.9)),
        "generate, 16 samples": (16, lambda: generate(model, [prompt] * 16, n)),
        "generate, 16 ragged prompts": (16, lambda: generate(model, [prompt[i:] for i in range(16)], n)),
        "generate, uncached": (1, lambda: generate(model, prompt, n, cached=False)),
    }
    assert generate(model, prompt, n, temperature=0).new[0] == bare(model, prompt, n)
    seconds = best_seconds({name: work for name, (_, work) in ways.items()}, args.repeats)
    rates = {name: rows * n / seconds[name] for name, (rows, _) in ways.items()}
    first = rates["bare loop, best token"]
    for name, rate in rates.items():
        print(f"{name:34} {rate:9,.0f} tokens/s  {rate / first:6.2f} of the bare loop")
    facts = {
        "preset": args.preset,
        "new_tokens": n,
        "threads": 1,
        "tokens_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "cached_over_uncached": round(rates["generate, best token"] / rates["generate, uncached"], 2),
        "bare_loop_over_generate": round(first / rates["generate, best token"], 3),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
