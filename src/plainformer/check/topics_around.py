"""What is done around a pass and can be checked: drawing a token, dropout, gradients and their use."""

from __future__ import annotations

import numpy as np

from plainformer.check import draws as d
from plainformer.check.topic import Argument, Open, Topic

LR = Argument("lr", ("learning_rate", "eta", "step_size"))
CHANCE = (
    Argument("rng", ("generator", "random_state", "gen", "random", "g"), None),
    Argument("seed", (), None),
)
CHOICE = (
    Argument("logits", ("scores", "x", "logit")),
    Argument("temperature", ("temp", "t", "tau"), 1.0),
    Argument("top_k", ("k", "topk"), None),
    Argument("top_p", ("p", "topp", "nucleus"), 1.0),
)

AROUND: tuple[Topic, ...] = (
    Topic(
        name="probabilities",
        about="what a token is drawn from: softmax(logits / temperature) over top_k, then top_p; logits (B, V)",
        run=lambda do, i: do("sample", np.atleast_2d(i["logits"]), i["temperature"], i["top_k"], i["top_p"]).reshape(
            np.shape(i["logits"])
        ),
        draw=d.to_draw_from,
        arguments=CHOICE,
        aliases=("probs", "samplingprobs", "tokenprobabilities", "nexttokenprobs", "filteredprobs"),
        ranks=(2, 1),
        n_draws=7,
        example={"logits": np.log([[8.0, 4, 2, 2]]), "temperature": 1.0, "top_k": None, "top_p": 1.0},
    ),
    Topic(
        name="sample",
        about="one token a row drawn from softmax(logits / temperature), over top_k and top_p; logits (B, V)",
        run=lambda do, i: do("sample", np.atleast_2d(i["logits"]), i["temperature"], i["top_k"], i["top_p"]).reshape(
            np.shape(i["logits"])
        ),
        draw=d.to_draw_from,
        arguments=(*CHOICE, *CHANCE),
        aliases=("sampletoken", "samplenexttoken", "nexttoken", "drawtoken", "samplelogits"),
        ranks=(2, 1),
        n_plain=5,
        n_draws=5,
        judged="chances",
        example={"logits": np.log([[8.0, 4, 2, 2]]), "temperature": 1.0, "top_k": None, "top_p": 1.0},
    ),
    Topic(
        name="dropout",
        about="training: each value 0 with chance p, the others divided by 1 - p; evaluation: the input as it is",
        run=lambda do, i: do("dropout", i["p"], i["training"]),
        draw=d.dropped,
        arguments=(
            Argument("x", ("input", "h", "a")),
            Argument("p", ("rate", "drop", "dropout", "prob", "drop_prob"), 0.3),
            Argument("training", ("train", "is_training", "mode"), True),
            *CHANCE,
        ),
        n_plain=3,
        n_draws=3,
        judged="dropout",
        example={"x": np.ones(1000), "p": 0.2, "training": True},
    ),
    Topic(
        name="accumulate_gradients",
        about="the gradient of a batch from the gradients (N, ...) of its N equal parts: their mean",
        run=lambda do, i: do("accumulate", i["grads"]),
        draw=d.gradients,
        arguments=(Argument("grads", ("gradients", "parts", "g", "micro_grads")),),
        aliases=("accumulate", "accumulategrads", "accumulatedgradient"),
        n_plain=3,
        n_draws=3,
        example={"grads": np.array([[1.0, 2.0], [3.0, 6.0]])},
    ),
    Topic(
        name="sgd_steps",
        about="w after one step of plain gradient descent for each of the gradients (N, ...)",
        run=lambda do, i: do("sgd", i["w"], i["grads"], i["lr"]),
        draw=d.descents,
        arguments=(Argument("w", ("weights", "param", "theta", "p")), Argument("grads", ("gradients", "g")), LR),
        aliases=("sgd", "gradientdescent", "sgdsteps"),
        n_plain=3,
        n_draws=3,
        example={"w": np.array([10.0]), "grads": np.array([[1.0], [2.0], [4.0]]), "lr": 1.0},
    ),
    Topic(
        name="clip_gradients",
        about="all gradients times min(1, max_norm / their norm together)",
        run=lambda do, i: do("clip", i["grads"], i["max_norm"]),
        draw=d.too_long,
        arguments=(
            Argument("grads", ("gradients", "g", "grad")),
            Argument("max_norm", ("max_grad_norm", "clip", "norm", "limit")),
        ),
        aliases=("clip", "clipgradnorm", "clipgrads", "clipbynorm", "clipgradientnorm"),
        n_plain=3,
        n_draws=3,
        example={"grads": np.array([[3.0, 0.0], [0.0, 4.0]]), "max_norm": 1.0},
    ),
    Topic(
        name="layer_norm_grad",
        about="(dx, dgain, dbias) of layer_norm from the gradient of its output",
        run=lambda do, i: d.slopes_of_norm(do, i),
        draw=d.norm_and_upstream,
        arguments=(
            Argument("x", ("input", "inputs")),
            Argument("gain", ("gamma", "weight", "g", "w")),
            Argument("bias", ("beta", "b"), 0.0),
            Argument("eps", ("epsilon",), 1e-5),
            Argument("upstream", ("dout", "dy", "grad_output", "up", "d_out", "grad")),
        ),
        aliases=("layernormbackward", "lnbackward", "layernormgradient", "backwardlayernorm"),
        open=(Open("eps", (1e-5, 1e-6, 1e-8, 1e-12), ("eps",), told="eps = {:g}"),),
        joined=True,
        loose=1e-6,
        n_plain=3,
        n_draws=3,
        example={
            "x": np.array([[1.0, 2.0, 4.0]]),
            "gain": np.ones(3),
            "bias": np.zeros(3),
            "eps": 1e-5,
            "upstream": np.array([[1.0, 0.0, 0.0]]),
        },
    ),
)
