"""Published models as literals, and shapes meant to be trained. A preset is built when it is asked for, then kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from plainformer.faults import refuse
from plainformer.spec import Linear, Scaling, SigmoidRouter, Spec

Sizes = dict[str, Any]
Recipe = tuple[str, Sizes]  # the builder ("decoders.gpt2": room and function in families), its keyword arguments


def _gpt2(n_layers: int, d_model: int, n_heads: int, **more: Any) -> Recipe:
    sizes = {"n_layers": n_layers, "d_model": d_model, "n_heads": n_heads, "vocab_size": 50257, "max_seq_len": 1024}
    return "decoders.gpt2", sizes | more


def _llama3(n_layers: int, d_model: int, n_heads: int, d_ff: int, max_seq_len: int, **more: Any) -> Recipe:
    sizes = {"n_layers": n_layers, "d_model": d_model, "n_heads": n_heads, "d_ff": d_ff, "max_seq_len": max_seq_len}
    fixed = {"vocab_size": 128256, "n_kv_heads": 8, "d_head": 128, "theta": 500000.0, "eps": 1e-5}
    return "llamas.llama", sizes | fixed | more


def _bert(n_layers: int, d_model: int, n_heads: int) -> Recipe:
    sizes = {"n_layers": n_layers, "d_model": d_model, "n_heads": n_heads, "d_ff": 4 * d_model}
    return "encoders.bert", sizes | {"vocab_size": 30522, "max_seq_len": 512}


def _t5(n_layers: int, d_model: int, n_heads: int, d_ff: int, **more: Any) -> Recipe:
    sizes = {
        "n_encoder_layers": n_layers,
        "n_decoder_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_ff": d_ff,
    }
    return "encoder_decoders.t5", sizes | {"vocab_size": 32128, "max_seq_len": 512, "d_head": 64} | more


LLAMA_3_1 = Scaling(
    kind="llama3",
    settings=(
        ("factor", 8.0),
        ("high_freq_factor", 4.0),
        ("low_freq_factor", 1.0),
        ("original_max_position_embeddings", 8192.0),
    ),
)
DEEPSEEK_YARN = Scaling(
    kind="yarn",
    settings=(
        ("beta_fast", 32.0),
        ("beta_slow", 1.0),
        ("factor", 40.0),
        ("mscale", 1.0),
        ("mscale_all_dim", 1.0),
        ("original_max_position_embeddings", 4096.0),
        ("truncate", 1.0),
    ),
)

# The shapes of Figure 3 use the plain GELU, as does the code they come from; GPT-2's checkpoints the tanh form.
PUBLISHED: dict[str, Recipe] = {
    "lesson": _gpt2(2, 32, 4, vocab_size=50, max_seq_len=16, qkv_bias=False, out_bias=False),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "gpt3": _gpt2(96, 12288, 96, max_seq_len=2048),  # its banded layers are taken as full ones
    "fig3-4x32": _gpt2(4, 32, 4, activation="gelu"),
    "fig3-4x64": _gpt2(4, 64, 4, activation="gelu"),
    "fig3-4x128": _gpt2(4, 128, 4, activation="gelu"),
    "fig3-8x256": _gpt2(8, 256, 8, activation="gelu"),
    "fig3-8x384": _gpt2(8, 384, 8, activation="gelu"),
    "fig3-8x512": _gpt2(8, 512, 8, activation="gelu"),
    "fig3-10x640": _gpt2(10, 640, 10, activation="gelu"),
    "fig3-12x768": _gpt2(12, 768, 12, activation="gelu"),
    "paper-20x1280": _gpt2(20, 1280, 20, activation="gelu"),
    "paper-25x1600": _gpt2(25, 1600, 25, activation="gelu"),
    "llama-2-70b": (
        "llamas.llama",
        {
            "vocab_size": 32000,
            "max_seq_len": 4096,
            "d_model": 8192,
            "n_layers": 80,
            "n_heads": 64,
            "n_kv_heads": 8,
            "d_head": 128,
            "d_ff": 28672,
            "eps": 1e-5,
        },
    ),
    "llama-3-8b": _llama3(32, 4096, 32, 14336, 8192),
    "llama-3-70b": _llama3(80, 8192, 64, 28672, 8192),
    "llama-3.1-405b": _llama3(126, 16384, 128, 53248, 131072, scaling=LLAMA_3_1),
    "mixtral-8x7b": (
        "mixtures.mixtral",
        {
            "vocab_size": 32000,
            "max_seq_len": 32768,
            "d_model": 4096,
            "n_layers": 32,
            "n_heads": 32,
            "n_kv_heads": 8,
            "d_head": 128,
            "d_ff": 14336,
            "n_experts": 8,
            "n_chosen": 2,
            "balance": 0.02,
        },
    ),
    "deepseek-v3": (
        "mixtures.deepseek",
        {
            "vocab_size": 129280,
            "max_seq_len": 163840,
            "d_model": 7168,
            "n_layers": 61,
            "n_dense": 3,
            "n_heads": 128,
            "d_nope": 128,
            "d_rope": 64,
            "d_value": 128,
            "q_rank": 1536,
            "kv_rank": 512,
            "d_ff": 18432,
            "d_expert": 2048,
            "n_shared": 1,
            "scaling": DEEPSEEK_YARN,
            "router": SigmoidRouter(
                scores=Linear(n_in=7168, n_out=256),
                n_chosen=8,
                n_groups=8,
                n_chosen_groups=4,
                factor=2.5,
                normalised=True,
            ),
        },
    ),
    "bert-base": _bert(12, 768, 12),
    "bert-large": _bert(24, 1024, 16),
    "t5-small": _t5(6, 512, 8, 2048),
    "t5-v1_1-base": _t5(12, 768, 12, 2048, activation="gelu_tanh", gated=True, tied=False),
}

# Shapes to train: all but the vocabulary, which comes from the tokenizer.
TRAINABLE: dict[str, Recipe] = {
    "tiny": ("llamas.small", {"max_seq_len": 64, "d_model": 64, "n_layers": 2, "n_heads": 4}),
    "small": ("llamas.small", {"max_seq_len": 256, "d_model": 96, "n_layers": 3, "n_heads": 6, "tied": False}),
    "small-moe": (
        "mixtures.small_moe",
        {"max_seq_len": 256, "d_model": 96, "n_layers": 3, "n_heads": 6, "tied": False},
    ),
    "gpt2-style": ("decoders.gpt2", {"max_seq_len": 256, "d_model": 256, "n_layers": 6, "n_heads": 4}),
}
BYTES = 256  # the vocabulary of a trainable preset that is only asked for by name


def build(recipe: Recipe, changes: Sizes) -> Spec:
    """Call a recipe's builder, with changes in place of what the recipe says."""
    room, name = recipe[0].split(".")
    builder = getattr(import_module(f"plainformer.families.{room}"), name)
    known = builder.__kwdefaults__.keys() | builder.__annotations__.keys() - {"return"}
    if unknown := sorted(changes.keys() - known):
        raise refuse(unknown[0], changes[unknown[0]], f"{name} has no such size", f"it has {', '.join(sorted(known))}")
    spec: Spec = builder(**recipe[1] | changes)
    return spec


def heads(d_model: int, most: int) -> int:
    """The most heads of one even width, up to `most`; `most` where no number of them fits."""
    return next((n for n in range(most, 0, -1) if d_model % (2 * n) == 0), most)


@cache
def preset(name: str) -> Spec:
    if name in TRAINABLE:
        return build(TRAINABLE[name], {"vocab_size": BYTES})
    return build(PUBLISHED[name], {})


def recipe_of(name: str, recipes: dict[str, Recipe]) -> Recipe:
    """The recipe with this name, or a refusal that offers the nearest names."""
    if name not in recipes:
        from difflib import get_close_matches

        if name in PUBLISHED:
            hint = f"to train: {', '.join(recipes)}"
            raise refuse("preset", name, "is published, with a vocabulary of its own", hint)
        near = get_close_matches(name, recipes, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "plainformer.presets lists them"
        raise refuse("preset", name, "there is no such preset", hint)
    return recipes[name]


class Presets:
    """Names to specs, read-only. Iterates over the names."""

    def __getitem__(self, name: str) -> Spec:
        """The spec with this name; a trainable one with 256 tokens. Refuses other names, offering the nearest."""
        recipe_of(name, PUBLISHED | TRAINABLE)
        return preset(name)

    def __iter__(self) -> Iterator[str]:
        return iter(PUBLISHED | TRAINABLE)

    def __len__(self) -> int:
        return len(PUBLISHED) + len(TRAINABLE)

    def __contains__(self, name: object) -> bool:
        return name in PUBLISHED or name in TRAINABLE

    def keys(self) -> tuple[str, ...]:
        return tuple(self)

    def trainable(self, name: str, *, vocab_size: int, **changes: Any) -> Spec:
        """The spec `name` with the tokenizer's vocabulary, and with changes to the sizes of its builder by their names.

        What the builder derives follows the changes: trainable("small", vocab_size=65, d_model=128) widens its
        feed-forward too, and has as many heads as go into that width, at most its own. Refuses names that are not meant
        to be trained, and sizes that its builder lacks.
        """
        recipe = recipe_of(name, TRAINABLE)
        if "d_model" in changes and "n_heads" not in changes:
            changes["n_heads"] = heads(changes["d_model"], recipe[1]["n_heads"])
        return build(recipe, {"vocab_size": vocab_size} | changes)


presets = Presets()
