"""What stands at a model's ends, and routers: token tables, losses, gates."""

from __future__ import annotations

import numpy as np

from plainformer.check import draws as d
from plainformer.check.topic import Argument, Topic

LOGITS = Argument("logits", ("scores", "x", "input", "pred", "preds", "y_pred", "logit", "z", "output"))

ENDS: tuple[Topic, ...] = (
    Topic(
        name="top_k_gates",
        about="softmax over each token's k best scores (T, E), 0 elsewhere; of equal scores the lower expert's wins",
        run=lambda do, i: do("gates", i["scores"], i["k"]),
        draw=d.routed,
        arguments=(
            Argument("scores", ("router_logits", "logits", "x", "gate_logits")),
            Argument("k", ("n_chosen", "top_k", "num_experts_per_tok", "topk")),
        ),
        aliases=("topkgates", "gates", "topkrouter", "router", "topkgating", "route"),
        example={"scores": np.array([[2.0, 1.0, 0.5, -1.0]]), "k": 2},
    ),
    Topic(
        name="balance_loss",
        about="E * sum of (share of choices) * (mean probability): 1 for even traffic",
        run=lambda do, i: do("balance", i["scores"], i["k"]),
        draw=d.routed,
        arguments=(
            Argument("scores", ("router_logits", "logits", "x", "gate_logits")),
            Argument("k", ("n_chosen", "top_k", "num_experts_per_tok", "topk")),
        ),
        aliases=("loadbalancingloss", "loadbalanceloss", "auxloss", "auxiliaryloss"),
        n_draws=5,
        slopes=(),
        example={"scores": np.array([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), "k": 2},
    ),
    Topic(
        name="cross_entropy",
        about="mean of -ln softmax(logits)[target]; targets of `ignore_index` count nowhere",
        run=lambda do, i: do("loss", i["logits"], i["targets"], i["ignore_index"]),
        draw=d.scored,
        arguments=(
            LOGITS,
            Argument("targets", ("target", "labels", "y", "y_true", "ids", "label")),
            Argument("ignore_index", ("pad_id", "padding", "pad_token_id", "ignore"), None),
        ),
        aliases=("crossentropyloss", "celoss", "ce", "nll", "nllloss"),
        ranks=(3, 2),
        n_draws=7,
        slopes=("logits",),
        example={"logits": np.array([[2.0, 1, 0], [0, 0, 0]]), "targets": np.array([0, 1]), "ignore_index": None},
    ),
    Topic(
        name="next_token_loss",
        about="mean of -ln p(next token): logits (..., T, V) of tokens (..., T), shifted by one",
        run=lambda do, i: do("next", i["logits"], i["tokens"]),
        draw=d.scored_tokens,
        arguments=(LOGITS, Argument("tokens", ("ids", "input_ids", "labels", "targets"))),
        aliases=("lmloss", "languagemodelloss", "causallmloss", "nexttokenprediction", "shiftedloss"),
        ranks=(3, 2),
        slopes=("logits",),
        example={"logits": np.array([[2.0, 0, 0], [0, 1, 0], [0, 0, 3]]), "tokens": np.array([0, 2, 1])},
    ),
    Topic(
        name="embed",
        about="token_table[ids] + position_table[start, start + 1, ..]",
        run=lambda do, i: do("embed", i["ids"], i["tokens.w"], i["positions.w"], i["start"]),
        draw=d.embedded,
        arguments=(
            Argument("ids", ("x", "tokens", "idx", "input_ids")),
            Argument("tokens.w", ("token_table", "wte", "token_embedding", "tok_emb", "token_weight", "table")),
            Argument("positions.w", ("position_table", "wpe", "position_embedding", "pos_emb", "pos_table")),
            Argument("start", ("offset", "start_pos", "past_length"), 0),
        ),
        aliases=("embedding", "embeddings", "embedtokens"),
        ranks=(2, 1),
        example={
            "ids": np.array([2, 1]),
            "tokens.w": np.array([[1.0, 2], [3, 4], [5, 6]]),
            "positions.w": np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]]),
            "start": 0,
        },
    ),
    Topic(
        name="sinusoids",
        about="the 2017 position table (n_tokens, width)",
        run=lambda do, i: do("sinusoids", i["n_tokens"], i["width"]),
        draw=d.table_sizes,
        arguments=(
            Argument("n_tokens", ("max_len", "seq_len", "length", "t", "n_positions", "num_positions")),
            Argument("width", ("d_model", "dim", "d", "embed_dim", "n_embd")),
        ),
        aliases=("positionalencoding", "sinusoidalpositions", "sinusoidal", "sinusoidalencoding", "positions"),
        n_plain=3,
        n_draws=3,
        example={"n_tokens": 2, "width": 4},
    ),
)
