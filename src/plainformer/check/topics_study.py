"""What the exercises ask beside the parts: who may see whom, a count, an update, a GPT that trains on one batch."""

from __future__ import annotations

import math

import numpy as np

from plainformer.check import draws as d
from plainformer.check import steps_study as steps_study
from plainformer.check.topic import Argument, Inputs, Topic

SIZES = (  # vocab_size, max_seq_len, d_model, n_layers, d_ff
    (50, 16, 32, 2, 128), (11, 7, 6, 3, 20), (50257, 1024, 768, 12, 3072), (13, 5, 4, 1, 9),
)  # fmt: skip


def sized(rng: d.Rng, number: int, rank: int) -> Inputs:
    return dict(zip(("vocab_size", "max_seq_len", "d_model", "n_layers", "d_ff"), SIZES[number], strict=True))


def queries_and_keys(rng: d.Rng, number: int, rank: int) -> Inputs:
    n_queries, n_keys = ((4, 4), (3, 7), (1, 5), (6, 6))[number]
    return {"n_queries": n_queries, "n_keys": n_keys}


def updated(rng: d.Rng, number: int, rank: int) -> Inputs:
    t = (1, 3, 20)[number]
    grad, m = d.normal(rng, 5, scale=0.5), d.normal(rng, 5, scale=0.2) * (t > 1)
    v = np.abs(d.normal(rng, 5, scale=0.2)) * (t > 1)
    return {
        "w": d.normal(rng, 5), "grad": grad, "m": m, "v": v, "t": t, "lr": 0.125, "beta1": 0.9, "beta2": 0.96875,
        "eps": (2.0**-10, 1e-8, 2.0**-6)[number], "weight_decay": (0.25, 0.5, 0.125)[number],
    }  # fmt: skip


def one_batch(rng: d.Rng, number: int, rank: int) -> Inputs:
    """Four rows of twelve tokens that begin unlike, then the same rows with other tokens from the seventh on."""
    tokens = np.concatenate((rng.permutation(11)[:4, None], rng.integers(0, 11, (4, 11))), 1)
    other = tokens.copy()
    other[:, 6:] = (other[:, 6:] + rng.integers(1, 11, (4, 6))) % 11
    return {"tokens": tokens, "asked": np.concatenate((tokens, other)), "vocab_size": 11, "n_steps": 200}


STUDY: tuple[Topic, ...] = (
    Topic(
        name="may_see",
        about="(n_queries, n_keys): True where a token may see another, itself and earlier; the last query is at the "
        "last key",
        run=lambda do, i: do("see", i["n_queries"], i["n_keys"] or i["n_queries"]),
        draw=queries_and_keys,
        arguments=(Argument("n_queries", ("n_q", "t")), Argument("n_keys", ("n_k", "s"), None)),
        n_plain=4,
        n_draws=4,
        example={"n_queries": 2, "n_keys": 3},
    ),
    Topic(
        name="count_gpt_parameters",
        about="parameters of a GPT with biases everywhere and a tied head",
        run=lambda do, i: do(
            "count", *(i[name] for name in ("vocab_size", "max_seq_len", "d_model", "n_layers", "d_ff"))
        ),
        draw=sized,
        arguments=(
            Argument("vocab_size", ("n_vocab",)),
            Argument("max_seq_len", ("context", "block_size", "n_positions")),
            Argument("d_model", ("width", "n_embd")),
            Argument("n_layers", ("n_layer", "num_layers")),
            Argument("d_ff", ("hidden", "n_inner")),
        ),
        n_plain=4,
        n_draws=4,
        example={"vocab_size": 5, "max_seq_len": 3, "d_model": 2, "n_layers": 1, "d_ff": 4},
    ),
    Topic(
        name="adamw_step",
        about="(w, m, v) after one update; t = 1 at the first",
        run=lambda do, i: do("adamw", i["w"], i["grad"], i["m"], i["v"], i["t"], i["lr"], (i["beta1"], i["beta2"]),
                             i["eps"], i["weight_decay"]),
        draw=updated,
        arguments=(
            Argument("w", ("param", "theta", "p")),
            Argument("grad", ("g", "gradient")),
            Argument("m", ("exp_avg",)),
            Argument("v", ("exp_avg_sq",)),
            Argument("t", ("step",)),
            Argument("lr", ("learning_rate",)),
            Argument("beta1", ("b1",)),
            Argument("beta2", ("b2",)),
            Argument("eps", ("epsilon",)),
            Argument("weight_decay", ("wd", "decay")),
        ),
        aliases=("adamwstep", "adamwupdate"),
        joined=True,
        n_plain=3,
        n_draws=3,
        example={
            "w": np.array([10.0]), "grad": np.array([2.0]), "m": np.array([0.0]), "v": np.array([0.0]), "t": 1,
            "lr": 0.5, "beta1": 0.9, "beta2": 0.75, "eps": 1.0, "weight_decay": 0.2,
        },
    ),
    Topic(
        name="train_on_batch",
        about="(losses, logits): the loss in nats before each step of a new GPT on tokens (B, T), each held against "
        "the next; then its logits of asked (N, T)",
        run=lambda do, i: np.asarray(math.log(i["vocab_size"])),  # of a loss what is known beforehand: an untrained one
        draw=one_batch,
        arguments=(
            Argument("tokens", ("ids", "batch")),
            Argument("asked", ("queries",)),
            Argument("vocab_size", ("n_vocab",)),
            Argument("n_steps", ("steps",)),
        ),
        n_plain=1,
        n_draws=1,
        judged="training",
        example={"tokens": np.array([[0, 1]]), "asked": np.array([[0, 1]]), "vocab_size": 2, "n_steps": 1},
    ),
)  # fmt: skip
