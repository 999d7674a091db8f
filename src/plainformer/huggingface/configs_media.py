"""Readers for what sees and hears without writing (CLIP, SigLIP, DINOv2, wav2vec 2.0, HuBERT), and for Whisper.

Absent keys take the published class's defaults. Sized, not run."""

from __future__ import annotations

from typing import Any

from plainformer.families import towers
from plainformer.families.parts import attention, dot, feed_forward, layer_norm, linear, pre_norm_layer
from plainformer.huggingface.configs_encoder_decoders import THREE_TABLES, kin
from plainformer.huggingface.configs_keys import ACTIVATIONS, Keys
from plainformer.mixers import Patches, Piece, Sized
from plainformer.records import replace
from plainformer.spec import (
    Attention,
    Branch,
    FeedForward,
    Head,
    Residual,
    Spec,
    Stack,
    Table,
    Tokens,
    Tower,
)
from plainformer.tree import rewrite

OWN_HEAD = "the head of this class cannot be said yet"


def only(keys: Keys, *endings: str) -> str:
    """The class's name; one that ends otherwise has a head that cannot be said."""
    name = keys.architecture()
    if name and not name.endswith(endings):
        keys.fault("architectures", name, OWN_HEAD)
    return name


def plain_layer(keys: Keys, d_model: int, n_heads: int, d_ff: int, activation: str, eps: float) -> tuple[Residual, ...]:
    """Pre-norm, with biases: the layer that CLIP and its kin share."""
    d_head = max(1, d_model // n_heads)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        scores=dot(d_head),
        qkv_bias=True,
        out_bias=True,
    )
    quick = keys.get("hidden_act") or activation
    if quick == "quick_gelu":
        keys.leave_unsaid("The activation x * sigmoid(1.702 x) is taken as GELU: it changes no size.")
    known = activation if activation in ACTIVATIONS else "gelu"
    act = "gelu" if quick == "quick_gelu" else keys.activation(default=known)
    return pre_norm_layer(part, feed_forward(d_model, d_ff, act, bias=True), layer_norm(d_model, eps))


def text_stack(text: Keys, sizes: dict[str, int], activation: str, eps: float, *, causal: bool) -> Spec:
    """A stack over text that writes nothing. sizes: the class's defaults."""
    d_model = text.count("hidden_size", default=sizes["hidden_size"])
    text = text.with_also({"num_attention_heads": sizes["num_attention_heads"], "hidden_size": d_model})
    text.divides("num_attention_heads", "hidden_size")
    rows = text.count("max_position_embeddings", default=sizes["max_position_embeddings"])
    eps = text.real("layer_norm_eps", default=eps)
    d_ff = text.count("intermediate_size", default=sizes["intermediate_size"])
    layer = plain_layer(text, d_model, text.count("num_attention_heads"), d_ff, activation, eps)
    n_layers = text.layers("num_hidden_layers", default=12)
    return Spec(
        embedding=Tokens(table=Table(n_rows=text.count("vocab_size", default=sizes["vocab_size"]), width=d_model)),
        encoder=Stack(
            layers=(layer,) * n_layers,
            causal=causal,
            positions=Table(n_rows=rows, width=d_model),
            norm_last=layer_norm(d_model, eps),
        ),
        head=None,
        max_seq_len=rows,
    )


def tower_of(
    vision: Keys, patch: int, activation: str, eps: float, *, first: bool, connector: towers.Connector
) -> Tower:
    """first: a norm before the layers and a row for the picture (CLIP)."""
    d_model = vision.count("hidden_size", default=768)
    vision = vision.with_also({"num_attention_heads": 12, "hidden_size": d_model})
    vision.divides("num_attention_heads", "hidden_size")
    n_heads, patch = vision.count("num_attention_heads"), vision.count("patch_size", default=patch)
    n_rows = (vision.count("image_size", default=224) // patch) ** 2 + first
    eps = vision.real("layer_norm_eps", default=eps)
    layer = plain_layer(vision, d_model, n_heads, vision.count("intermediate_size", default=3072), activation, eps)
    norm = layer_norm(d_model, eps)
    row = (Sized(width=d_model, kind="embedding", pieces=(Table(n_rows=1, width=d_model),)),) if first else ()
    return Tower(
        patches=linear(vision.count("num_channels", default=3) * patch**2, d_model, bias=not first),
        positions=Table(n_rows=max(1, n_rows), width=d_model),
        stack=Stack(
            layers=(layer,) * vision.layers("num_hidden_layers", default=12),
            causal=False,
            norm_first=norm if first else None,
            norm_last=norm,
        ),
        connector=(*row, *connector),
    )


def as_spec(keys: Keys, tower: Tower, head: Head | None) -> Spec:
    """A tower that stands alone: its patches are what is read, after a row of its own."""
    pieces = [piece for one in tower.connector if isinstance(one, Sized) for piece in one.pieces]
    row = next((piece for piece in pieces if isinstance(piece, Table)), None)
    if row is None:
        keys.fault("vision_use_head", False, "a tower alone without a row of its own cannot be said yet")
    rest = tuple(piece for piece in pieces if piece is not row)
    d_model = tower.patches.n_out
    return Spec(
        embedding=Tokens(table=row or Table(n_rows=1, width=d_model), project=Patches(linear=tower.patches)),
        encoder=replace(tower.stack, positions=tower.positions),
        head=head,
        max_seq_len=tower.positions.n_rows if tower.positions else 1,
        towers=(Sized(width=d_model, kind="attention", pieces=rest),) if rest else (),
    )


CLIP_TEXT = {"hidden_size": 512, "num_attention_heads": 8, "max_position_embeddings": 77}
CLIP_TEXT |= {"intermediate_size": 2048, "vocab_size": 49408}
SIGLIP_TEXT = {"hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 64}
SIGLIP_TEXT |= {"intermediate_size": 3072, "vocab_size": 32000}


def clip(keys: Keys) -> Spec:
    """Radford et al. 2021, section 2.4: a causal stack over text beside a tower, each projected to one width."""
    only(keys, "CLIPModel")
    d_out = keys.count("projection_dim", default=512)
    names = {part: f"{part}_dict" if keys.has(f"{part}_dict") else part for part in ("text_config", "vision_config")}
    text = text_stack(keys.sub(names["text_config"]), CLIP_TEXT, "quick_gelu", 1e-5, causal=True)
    vision = keys.sub(names["vision_config"])
    project = linear(vision.count("hidden_size", default=768), d_out)
    tower = tower_of(vision, 32, "quick_gelu", 1e-5, first=True, connector=(project,))
    scale = Sized(width=text.d_model, kind="mixer", pieces=(Table(n_rows=1, width=1),))
    head = Head(linear=linear(text.d_model, d_out), tied=False, pool="first")
    return replace(text, head=head, towers=(tower, scale))


def clip_text_model(keys: Keys) -> Spec:
    name = only(keys, "CLIPTextModel", "CLIPTextModelWithProjection")
    text = text_stack(keys, CLIP_TEXT, "quick_gelu", 1e-5, causal=True)
    project = linear(text.d_model, keys.count("projection_dim", default=512))
    return replace(text, head=Head(linear=project, tied=False)) if name.endswith("Projection") else text


def clip_vision_model(keys: Keys) -> Spec:
    name = only(keys, "CLIPVisionModel", "CLIPVisionModelWithProjection")
    tower = tower_of(keys, 32, "quick_gelu", 1e-5, first=True, connector=())
    project = linear(tower.patches.n_out, keys.count("projection_dim", default=512))
    return as_spec(keys, tower, Head(linear=project, tied=False, pool="first") if name.endswith("Projection") else None)


def siglip_tower(vision: Keys) -> Tower:
    tower = tower_of(vision, 16, "gelu_pytorch_tanh", 1e-6, first=False, connector=())
    if not vision.flag("vision_use_head", True):
        return tower
    part = tower.stack.layers[0][0].branches[0].part
    second = tower.stack.layers[0][1].branches[0].part
    assert isinstance(part, Attention)  # plain_layer gives both
    assert isinstance(second, FeedForward)
    head = towers.pooling_head(tower.patches.n_out, part.n_heads, second.up.n_out, second.activation, 1e-6)
    return replace(tower, connector=(head,))


def siglip_text_model(keys: Keys) -> Spec:
    only(keys, "TextModel")
    text = text_stack(keys, SIGLIP_TEXT, "gelu_pytorch_tanh", 1e-6, causal=False)
    d_out = keys.count("projection_size", default=text.d_model)
    return replace(text, head=Head(linear=linear(text.d_model, d_out, True), tied=False, pool="first"))


def siglip_vision_model(keys: Keys) -> Spec:
    only(keys, "VisionModel")
    return as_spec(keys, siglip_tower(keys), None)


def siglip(keys: Keys) -> Spec:
    """Zhai et al. 2023: CLIP's two stacks, each token of a text sees all, a row that reads the picture."""
    only(keys, "SiglipModel")
    inner = keys.sub("text_config")
    text = text_stack(inner, SIGLIP_TEXT, "gelu_pytorch_tanh", 1e-6, causal=False)
    d_out = inner.count("projection_size", default=text.d_model)
    head = Head(linear=linear(text.d_model, d_out, True), tied=False, pool="first")
    numbers = Sized(width=text.d_model, kind="mixer", pieces=(Table(n_rows=1, width=2),))
    return replace(text, head=head, towers=(siglip_tower(keys.sub("vision_config")), numbers))


def dinov2(keys: Keys) -> Spec:
    """Oquab et al. 2023: a picture's encoder whose parts' outputs are scaled by a learned vector each."""
    name = only(keys, "Dinov2Model", "ForImageClassification")
    keys.refuse_set("use_swiglu_ffn", "a feed-forward of that kind cannot be said yet")
    keys.leave_unsaid("The vector that scales each part's output is counted, and not said.")
    ratio = keys.real("mlp_ratio", default=4)
    d_model = keys.count("hidden_size", default=768)
    keys = keys.with_also({"intermediate_size": int(d_model * ratio), "layer_norm_eps": 1e-6})
    tower = tower_of(keys, 14, "gelu", 1e-6, first=True, connector=())
    bias = keys.flag("qkv_bias", True)

    def change(part: Any) -> Any:
        if isinstance(part, Attention) and not bias:
            part = replace(part, **{one: replace(getattr(part, one), bias=False) for one in ("q", "k", "v")})
        if isinstance(part, Branch) and isinstance(part.part, (Attention, FeedForward)):
            attends, pieces = isinstance(part.part, Attention), (part.part, Table(n_rows=1, width=d_model))
            scaled = Sized(width=d_model, kind="attention" if attends else "feed_forward", pieces=pieces)
            return replace(part, part=scaled)
        return part

    stack = replace(rewrite(tower.stack, change), norm_first=None)
    tower = replace(tower, patches=replace(tower.patches, bias=True), stack=stack)
    answers = (keys.answers(2 * d_model).linear,) if name.endswith("ForImageClassification") else ()
    spec = as_spec(keys, tower, None)
    mask = (Table(n_rows=1, width=d_model),) if keys.flag("use_mask_token", True) else ()
    if not (mask or answers):
        return spec
    return replace(spec, towers=(Sized(width=d_model, kind="embedding", pieces=(*mask, *answers)),))


def whisper(keys: Keys) -> Spec:
    """Radford et al. 2022, section 2.2: an encoder of sound, by two convolutions, below a decoder of text."""
    keys.tied_or_refused(THREE_TABLES)
    only(keys, "ForConditionalGeneration", "WhisperModel")
    n_mel, rows = keys.count("num_mel_bins", default=80), keys.count("max_target_positions", default=448)
    heard = keys.count("max_source_positions", default=1500)
    keys.leave_unsaid("The convolutions before the encoder are counted as products in its first layer.")
    keys.note(f"The encoder reads {heard:,} rows of sound; figures of a source take as many rows as the text has.")
    more = {"max_position_embeddings": rows, "d_model": 384, "encoder_layers": 4, "decoder_layers": 4}
    more |= {"encoder_attention_heads": 6, "decoder_attention_heads": 6, "vocab_size": 51865}
    spec = kin(
        keys.with_also(more | {"encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}),
        rows=rows,
        pre_norm=True,
        norm_last=True,
    )
    d_model = spec.d_model

    def change(part: Any) -> Any:
        return replace(part, k=linear(d_model, d_model)) if isinstance(part, Attention) else part

    spec = rewrite(spec, change)
    assert spec.encoder is not None  # kin gives one
    steps = (linear(3 * n_mel, d_model, bias=True), linear(3 * d_model, d_model, bias=True))
    branch = Branch(name="convolutions", part=Sized(width=d_model, kind="mixer", pieces=steps))
    first = (Residual(branches=(branch,), add=False), *spec.encoder.layers[0])
    positions = Table(n_rows=heard, width=d_model)
    encoder = replace(spec.encoder, layers=(first, *spec.encoder.layers[1:]), positions=positions)
    return replace(spec, encoder=encoder)


def wav2vec2(keys: Keys) -> Spec:
    return of_waves(keys, "Wav2Vec2")


def hubert(keys: Keys) -> Spec:
    return of_waves(keys, "Hubert")


def of_waves(keys: Keys, family: str) -> Spec:
    """Baevski et al. 2020, section 2: convolutions over the wave, then an encoder with positions by a convolution."""
    name = only(keys, f"{family}Model", "ForCTC", "ForSequenceClassification")
    for flag in ("add_adapter", "use_weighted_layer_sum", "conv_pos_batch_norm"):
        keys.refuse_set(flag, "cannot be said yet")
    keys.refuse_set("adapter_attn_dim", "adapters inside the layers cannot be said yet", (None,))
    if not (keys.real("mask_time_prob", default=0.05) > 0 or keys.real("mask_feature_prob", default=0.0) > 0):
        keys.fault(
            "mask_time_prob", keys.get("mask_time_prob"), "without the row for what is masked: cannot be said yet"
        )
    keys.leave_unsaid("Convolutions over the wave are counted, and not in the operations of a row.")
    keys.note("Positions come by a convolution, so they have no end: 1,500 rows are 30 seconds.")
    d_model = keys.count("hidden_size", default=768)
    keys = keys.with_also({"num_attention_heads": 12, "hidden_size": d_model})
    keys.divides("num_attention_heads", "hidden_size")
    kernels, dims = keys.numbers("conv_kernel") or [10, 3, 3, 3, 3, 2, 2], keys.numbers("conv_dim") or [512] * 7
    if len(kernels) != len(dims) or min(*kernels, *dims) < 1:
        keys.fault("conv_kernel", kernels, f"must be above 0, and as many as conv_dim ({len(dims)})")
        kernels = dims = [1]
    by_layer = keys.choice("feat_extract_norm", {"group": False, "layer": True}, "group")
    bias, groups = keys.flag("conv_bias", False), keys.count("num_conv_pos_embedding_groups", default=16)
    eps, kernel = keys.real("layer_norm_eps", default=1e-5), keys.count("num_conv_pos_embeddings", default=128)
    waves: list[Piece] = []
    for i, (width, n) in enumerate(zip(dims, kernels, strict=True)):
        waves.append(linear(n * (dims[i - 1] if i else 1), width, bias))
        waves += [layer_norm(width, eps)] if by_layer or not i else []
    if d_model % groups:
        keys.fault("num_conv_pos_embedding_groups", groups, f"must divide hidden_size ({d_model})")
    waves += [layer_norm(dims[-1], eps)] if keys.flag("feat_proj_layer_norm", True) else []
    waves += [Table(n_rows=1, width=kernel), linear(max(1, d_model // groups) * kernel, d_model, bias=True)]
    d_ff = keys.count("intermediate_size", default=3072)
    layer, norm = (
        plain_layer(keys, d_model, keys.count("num_attention_heads"), d_ff, "gelu", eps),
        layer_norm(d_model, eps),
    )
    stable = keys.flag("do_stable_layer_norm", False)
    if not stable:  # the norms after the sums
        layer = tuple(replace(one, branches=(replace(one.branches[0], norm_in=None),), norm_sum=norm) for one in layer)
    head = None
    if name.endswith("ForSequenceClassification"):
        step = linear(d_model, keys.count("classifier_proj_size", default=256), bias=True)
        head = replace(keys.answers(step.n_out), transform=step, pool="mean")
    elif not name.endswith("Model"):
        head = Head(linear=linear(d_model, keys.count("vocab_size", default=32), True), tied=False)
    return Spec(
        embedding=Tokens(
            table=Table(n_rows=1, width=d_model), project=Patches(linear=linear(dims[-1], d_model, bias=True))
        ),
        encoder=Stack(
            layers=(layer,) * keys.layers("num_hidden_layers", default=12),
            causal=False,
            norm_first=None if stable else norm,
            norm_last=norm if stable else None,
        ),
        head=head,
        max_seq_len=1500,
        towers=(Sized(width=d_model, kind="mixer", pieces=tuple(waves)),),
    )
