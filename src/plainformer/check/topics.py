"""The parts of a transformer that can be checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from plainformer.check import draws as d
from plainformer.check import steps_whole as steps_whole
from plainformer.check.steps import Array, Doing
from plainformer.check.topic import REQUIRED, Argument, Inputs, Open, Topic
from plainformer.check.topics_around import AROUND
from plainformer.check.topics_ends import ENDS
from plainformer.check.topics_study import STUDY


def w_of(inputs: Inputs) -> dict[str, Array]:
    return {
        name: value for name, value in inputs.items() if ("." in name or name in ("wte", "wpe")) and value is not None
    }


def allowed_of(do: Doing, i: Inputs) -> Array:
    if i.get("allowed") is not None:
        return i["allowed"]
    return do("attn.see", i["q"].shape[-2], i["k"].shape[-2], bool(i["causal"]))


def mask_of(i: Inputs) -> Any:
    """The mask that was given, or whether there is a causal one."""
    return i["causal"] if i.get("allowed") is None else i["allowed"]


def turned_along(do: Doing, i: Inputs) -> Array:
    x = i["x"] if i["tokens_axis"] == -2 else i["x"].swapaxes(-2, -3)
    turned = do("rotary", x, i["start"], i["theta"], i["interleaved"])
    return turned if i["tokens_axis"] == -2 else turned.swapaxes(-2, -3)


ACTED = {"gelu": "GELU in its erf form", "gelu_tanh": "GELU in its tanh form", "silu": "the activation is SiLU"}
EPS = Open("eps", (1e-5, 1e-6, 1e-8, 1e-12), ("eps",), told="eps = {:g}")
CAUSAL = Open(
    "causal",
    (True, False),
    ("causal", "allowed"),
    told={True: "it is causal", False: "it is not causal: every token sees all"},
)
WIDE = ("x", "input", "inputs", "hidden", "hidden_states", "h", "a", "t", "arr", "values", "z")
GAIN = Argument("gain", ("gamma", "weight", "g", "scale", "w", "alpha"), 1.0)
BIAS = Argument("bias", ("beta", "b", "shift", "offset"), 0.0)
EPSILON = Argument("eps", ("epsilon", "variance_epsilon", "layer_norm_eps", "norm_eps"), 1e-5)
HEADS = Argument("n_heads", ("num_heads", "n_head", "heads", "h", "nhead", "num_attention_heads"))
ACTIVATION = Open("activation", ("gelu", "gelu_tanh"), ("activation",), told=ACTED)
MASK = Argument("allowed", ("mask", "attn_mask", "attention_mask", "may_attend", "visible"), None)
MASK_AS = Open(
    "mask_as",
    ("true may be seen", "added", "1 may be seen"),
    given="allowed",
    told={
        "true may be seen": "in the mask True may be seen",
        "added": "the mask is added to the scores: 0 or -inf",
        "1 may be seen": "in the mask 1 may be seen",
    },
)
IS_CAUSAL = Argument("causal", ("is_causal",), False)


def weight(name: str, *aliases: str, without: Any = None) -> Argument:
    short, leaf = name.split(".")
    flat = (f"{leaf}_{short}", f"{leaf}{short}", f"{short}_{leaf}", f"{leaf.upper()}{short}", f"{leaf.upper()}_{short}")
    return Argument(name, (*flat, *aliases), without)


QKVO = (
    weight("q.w", "w_query", "query_weight", "wq", without=REQUIRED),
    weight("k.w", "w_key", "key_weight", without=REQUIRED),
    weight("v.w", "w_value", "value_weight", without=REQUIRED),
    weight("o.w", "w_out", "out_weight", "w_output", "w_proj", without=REQUIRED),
    *(weight(f"{one}.b") for one in "qkvo"),
)
UP_DOWN = (
    weight("up.w", "w1", "weight1", "w_1", "w_in", "fc1", without=REQUIRED),
    weight("up.b", "b1", "bias1", "b_1", "b_in"),
    weight("down.w", "w2", "weight2", "w_2", "w_out", "fc2", without=REQUIRED),
    weight("down.b", "b2", "bias2", "b_2", "b_out"),
    weight("gate.w", "w3", "w_gate"),
)

PARTS: tuple[Topic, ...] = (
    Topic(
        name="softmax",
        about="exp(x) / sum exp(x) along the last axis",
        run=lambda do, i: do("softmax", i["x"]),
        draw=d.rows,
        arguments=(Argument("x", (*WIDE, "logits", "scores")), Argument("axis", ("dim",), -1)),
        ranks=(3, 2, 1),
        n_draws=8,
        slopes=("x",),
        example={"x": np.array([[1.0, 2.0], [3.0, 1.0]])},
    ),
    Topic(
        name="layer_norm",
        about="(x - mean) / sqrt(variance + eps) * gain + bias along the last axis",
        run=lambda do, i: do("norm", i["x"], i["gain"], i["bias"], i["eps"]),
        draw=d.normed_rows,
        draw_module=d.normed_rows_of_module,
        arguments=(Argument("x", WIDE), GAIN, BIAS, EPSILON),
        aliases=("layernorm", "ln", "norm"),
        open=(EPS,),
        ranks=(3, 2, 1),
        slopes=("x", "gain", "bias"),
        weights=True,
        example={"x": np.array([[1.0, 2.0, 3.0, 6.0]]), "gain": 2.0, "bias": 1.0, "eps": 1e-5},
    ),
    Topic(
        name="rms_norm",
        about="x / sqrt(mean x^2 + eps) * gain along the last axis",
        run=lambda do, i: do("rms", i["x"], i["gain"], i["eps"]),
        draw=d.normed_rows,
        draw_module=d.normed_rows_of_module,
        arguments=(Argument("x", WIDE), GAIN, EPSILON),
        aliases=("rmsnorm", "rms", "llamarmsnorm", "t5layernorm"),
        open=(Open("eps", (1e-6, 1e-5, 1e-8, 1e-12), ("eps",), told="eps = {:g}"),),
        ranks=(3, 2, 1),
        slopes=("x", "gain"),
        weights=True,
        example={"x": np.array([[1.0, 2.0, 3.0, 5.0]]), "gain": 2.0, "eps": 1e-6},
    ),
    Topic(
        name="gelu",
        about="x * Phi(x), exact or by tanh",
        run=lambda do, i: do("act", i["x"], i["activation"]),
        draw=d.spread_values,
        arguments=(Argument("x", WIDE),),
        aliases=("newgelu", "gelutanh", "gelunew", "geluexact", "gelu_approx"),
        open=(ACTIVATION,),
        slopes=("x",),
        example={"x": np.array([-1.0, 1.0, 2.0]), "activation": "gelu"},
    ),
    Topic(
        name="rotary",
        about="pairs of x (..., T, d_head) turned by position; halves (Llama) or interleaved (GPT-J)",
        run=lambda do, i: turned_along(do, i),
        draw=d.turned,
        arguments=(
            Argument("x", (*WIDE, "q", "xq")),
            Argument("start", ("offset", "start_pos", "position_offset", "past_length"), 0),
            Argument("theta", ("base", "rope_theta"), 10000.0),
        ),
        aliases=("rope", "applyrotary", "applyrope", "applyrotaryemb", "rotaryembedding", "rotate", "applyrotarypos"),
        open=(
            Open(
                "interleaved",
                (False, True),
                told={
                    False: "pairs are halves: (x[i], x[i + d/2]), as Llama's in Hugging Face's files",
                    True: "pairs are neighbours: (x[2i], x[2i + 1]), as in the paper and GPT-J",
                },
            ),
            Open("tokens_axis", (-2, -3), told="tokens along axis {}"),
        ),
        ranks=(4, 3, 2),
        example={
            "x": np.array([[1.0, 0, 0, 1], [1, 2, 3, 4]]),
            "start": 0,
            "theta": 100.0,
            "interleaved": False,
            "tokens_axis": -2,
        },
    ),
    Topic(
        name="attention",
        about="softmax(q k^T / sqrt(d_head)) v, q (..., T, d_head), k and v (..., S, d_head); True in allowed: may see",
        run=lambda do, i: do("attention", i["q"], i["k"], i["v"], allowed_of(do, i)),
        draw=d.queries,
        arguments=(
            Argument("q", ("query", "queries", "xq")),
            Argument("k", ("key", "keys", "xk")),
            Argument("v", ("value", "values", "xv")),
            MASK,
            IS_CAUSAL,
        ),
        aliases=(
            "scaleddotproductattention",
            "sdpa",
            "dotproductattention",
            "causalattention",
            "attend",
            "selfattention",
        ),
        open=(
            Open(
                "causal",
                (False, True),
                ("causal", "allowed"),
                told={True: "it is causal", False: "it is not causal: every token sees all"},
            ),
            MASK_AS,
        ),
        ranks=(4, 3, 2),
        n_draws=7,
        slopes=("q", "k", "v"),
        example={
            "q": np.array([[1.0, 0], [1, 2]]),
            "k": np.array([[1.0, 1], [0, 2]]),
            "v": np.array([[1.0, 0], [0, 4]]),
            "causal": True,
        },
    ),
    Topic(
        name="multi_head_attention",
        about="concat of heads W_o; x (..., T, d_model); weights act as x @ w",
        run=lambda do, i: do("heads", i["x"], w_of(i), i["n_heads"], i["n_kv_heads"] or i["n_heads"], mask_of(i)),
        draw=d.many_heads,
        draw_without={"n_kv_heads": d.many_heads_alike},
        arguments=(
            Argument("x", WIDE),
            *QKVO[:4],
            HEADS,
            *QKVO[4:],
            Argument("n_kv_heads", ("num_kv_heads", "n_groups", "num_key_value_heads", "n_kv_head"), None),
            MASK,
            Argument("causal", ("is_causal",), True),
        ),
        aliases=(
            "mha",
            "multiheadattention",
            "selfattention",
            "causalselfattention",
            "multiheadselfattention",
            "attentionlayer",
            "groupedqueryattention",
        ),
        open=(CAUSAL, MASK_AS),
        ranks=(3, 2),
        slopes=("x", "q.w", "k.w", "v.w", "o.w"),
        weights=True,
        example=d.two_heads(),
    ),
    Topic(
        name="cached_attention",
        about="attention of new tokens over past keys and values and their own: out (..., T, d_head)",
        run=lambda do, i: do("cached", i["q"], i["k"], i["v"], i["past_k"], i["past_v"]),
        draw=d.cached,
        arguments=(
            Argument("q", ("query",)),
            Argument("k", ("key", "new_k")),
            Argument("v", ("value", "new_v")),
            Argument("past_k", ("k_cache", "cache_k", "past_keys", "past_key")),
            Argument("past_v", ("v_cache", "cache_v", "past_values", "past_value")),
        ),
        aliases=("attentionstep", "attentionwithcache", "stepattention", "kvcacheattention"),
        ranks=(4, 3, 2),
        example={
            "q": np.array([[1.0, 1.0]]),
            "k": np.array([[0.0, 2.0]]),
            "v": np.array([[4.0, 0.0]]),
            "past_k": np.array([[1.0, 0], [0, 1]]),
            "past_v": np.array([[1.0, 0], [0, 1]]),
        },
    ),
    Topic(
        name="feed_forward",
        about="act(x W_up + b_up) W_down + b_down, act GELU; with w_gate: act(x W_gate) * (x W_up), act SiLU",
        run=lambda do, i: do("ff", i["x"], w_of(i), i["activation"]),
        draw=d.fed,
        arguments=(Argument("x", WIDE), *UP_DOWN),
        aliases=(
            "mlp",
            "ffn",
            "feedforward",
            "feedfoward",
            "positionwisefeedforward",
            "feedforwardnetwork",
            "swiglu",
            "geglu",
            "gatedmlp",
        ),
        open=(
            Open("activation", ("gelu", "gelu_tanh"), ("gate.w",), told=ACTED),
            Open("activation", ("silu", "gelu", "gelu_tanh"), given="gate.w", told=ACTED),
        ),
        ranks=(3, 2),
        slopes=("x", "up.w", "up.b", "down.w", "down.b"),
        weights=True,
        example={
            "x": np.array([[1.0, 2.0]]),
            "up.w": np.array([[1.0, 0, -1], [0, 1, 1]]),
            "up.b": np.array([1.0, 0, 0]),
            "down.w": np.array([[1.0, 0], [0, 1], [1, 1]]),
            "down.b": np.array([0.0, 1.0]),
            "activation": "gelu",
        },
    ),
    Topic(
        name="block",
        about="x + attention(norm(x)), then x + feed_forward(norm(x)): pre-norm, GELU, causal",
        run=lambda do, i: do("block", i["x"], w_of(i), i["n_heads"], mask_of(i), i["activation"], i["eps"]),
        draw=d.through_block,
        arguments=(Argument("x", WIDE), Argument("n_heads", ("num_heads",)), MASK),
        aliases=("transformerblock", "encoderlayer", "decoderlayer", "gpt2block", "decoderblock", "transformerlayer"),
        open=(ACTIVATION, CAUSAL, MASK_AS, Open("eps", (1e-5, 1e-6, 1e-12), told="eps = {:g}")),
        ranks=(3, 2),
        n_plain=3,
        n_draws=3,
        slopes=("x",),
        weights=True,
        example=d.small_block(),
    ),
    Topic(
        name="gpt",
        about="logits (B, T, V) of ids (B, T): token and position tables, pre-norm blocks, last norm, head",
        run=lambda do, i: do("gpt", i["ids"], w_of(i), i["n_heads"], i["activation"], i["eps"]),
        draw=d.through_gpt,
        arguments=(
            Argument("ids", ("x", "tokens", "idx", "input_ids")),
            Argument("n_heads", ("num_heads",)),
            Argument("targets", ("labels", "y", "target"), None),
        ),
        aliases=("tinygpt", "gptmodel", "gpt2", "transformer", "gpt2lmheadmodel", "gptlanguagemodel", "languagemodel"),
        open=(ACTIVATION, Open("eps", (1e-5, 1e-6, 1e-12), told="eps = {:g}")),
        ranks=(2, 1),
        n_plain=3,
        n_draws=3,
        weights=True,
        example=d.small_gpt(),
    ),
)

TOPICS: dict[str, Topic] = {topic.name: topic for topic in (*PARTS, *ENDS, *AROUND, *STUDY)}
