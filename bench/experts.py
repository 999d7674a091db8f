"""Experts grouped, each on its own tokens alone, beside every expert on every token: the time of a pass."""

from __future__ import annotations

import argparse
import json
from time import perf_counter

import torch
from measures import spread
from torch import Tensor

from plainformer.experts import Experts
from plainformer.families.mixtures import small_moe
from plainformer.model import Transformer
from plainformer.states import Where


def all_experts(module: Experts, x_ND: Tensor) -> Tensor:
    """What the grouping saves: each expert reads every token, and a gate of 0 throws most of it away."""
    _, _, gates_NE = module.router(x_ND)
    return sum(gates_NE[:, e, None] * module.experts(x_ND, None, e) for e in range(module.part.n_experts))


def timed(module: Experts, x_1ND: Tensor, grouped: bool, backward: bool) -> float:
    here = Where(torch.arange(x_1ND.shape[1])[None], causal=True)
    begun = perf_counter()
    with torch.set_grad_enabled(backward):
        said = module(x_1ND, here) if grouped else all_experts(module, x_1ND[0])
        if backward:
            said.sum().backward()
    return perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d-model", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    facts = {}
    for n_experts, n_chosen in ((4, 2), (8, 2), (16, 2), (32, 2)):
        spec = small_moe(
            vocab_size=8,
            max_seq_len=8,
            d_model=args.d_model,
            n_layers=1,
            n_heads=2,
            n_experts=n_experts,
            n_chosen=n_chosen,
        )
        module = Transformer(spec).decoder.layers[0].feed_forward
        x_1ND = torch.randn(1, args.tokens, args.d_model, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            for w in module.parameters():
                w.normal_(0, w.shape[-1] ** -0.5, generator=torch.Generator().manual_seed(1))
            here = Where(torch.arange(args.tokens)[None], causal=True)
            gap = (module(x_1ND, here)[0] - all_experts(module, x_1ND[0])).abs().max().item()
        assert gap < 1e-4, gap
        for backward in (False, True):
            times: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(args.repeats):  # in turns: what disturbs the machine disturbs both
                for grouped in times:
                    times[grouped].append(timed(module, x_1ND, grouped, backward))
            ratio = min(times[False]) / min(times[True])
            name = f"{n_chosen} of {n_experts} experts, {'forward and backward' if backward else 'forward'}"
            milliseconds = {way: spread([1000 * one for one in times[way]], 1) for way in times}
            print(
                f"{name:44} grouped {milliseconds[True]:24} all {milliseconds[False]:26} ms  {ratio:5.2f} times as fast"
            )
            facts[name] = round(ratio, 2)
    print(json.dumps({"d_model": args.d_model, "tokens": args.tokens, "threads": 1, "all_over_grouped": facts}))


if __name__ == "__main__":
    main()
