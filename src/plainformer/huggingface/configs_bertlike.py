"""Readers for the kin of BERT: RoBERTa, ELECTRA, DistilBERT, MPNet, DeBERTa, encoders with rotary positions, ViT.

Absent keys take the published class's defaults."""

from __future__ import annotations

from plainformer.families import encoders
from plainformer.families.parts import Layer, feed_forward, layer_norm, linear, pre_norm_layer, rms_norm, sublayer
from plainformer.huggingface.configs_encoders import head_of, with_task
from plainformer.huggingface.configs_keys import OWN_HEAD, Keys
from plainformer.huggingface.configs_parts import Frame, alike
from plainformer.mixers import Distances, Patches
from plainformer.records import replace
from plainformer.spec import Activation, Head, Linear, Norm, RelativeBias, Spec, Stack, Table, Tokens


def frame_of(keys: Keys, *, rows: int = 512, offset: int = 0) -> Frame:
    """Sizes by BERT's names; rows: of the position table, of which the first `offset` are no position."""
    keys.refuse_set("position_embedding_type", "relative positions cannot be said yet", (None, "absolute"))
    frame = Frame.of(keys, max_seq_len=rows)
    if frame.max_seq_len <= offset:
        keys.fault("max_position_embeddings", frame.max_seq_len, f"must be above {offset}, rows without a position")
    return replace(frame, n_kv_heads=frame.n_heads, max_seq_len=max(1, frame.max_seq_len - offset))


def stacked(
    frame: Frame,
    layers: tuple[Layer, ...],
    head: Head,
    *,
    n_types: int,
    norm_first: Norm | None,
    norm_last: Norm | None = None,
    offset: int = 0,
    positions: bool = True,
    d_embed: int | None = None,
    project: Linear | None = None,
) -> Spec:
    """d_embed, project: a narrow table and the step from it; positions and types are then as narrow, and so normed."""
    width = d_embed or frame.d_model
    rows = Table(n_rows=frame.max_seq_len + offset, width=width, offset=offset) if positions else None
    narrow = project is not None
    return Spec(
        embedding=Tokens(
            table=Table(n_rows=frame.keys.count("vocab_size"), width=width),
            types=Table(n_rows=n_types, width=width) if n_types else None,
            positions=rows if narrow else None,
            norm=norm_first if narrow else None,
            project=project,
        ),
        encoder=Stack(
            layers=layers,
            causal=False,
            positions=None if narrow else rows,
            norm_first=None if narrow else norm_first,
            norm_last=norm_last,
        ),
        head=head,
        max_seq_len=frame.max_seq_len,
    )


def eps_of(keys: Keys, default: float = 1e-12) -> float:
    return keys.real("layer_norm_eps", default=default)


def vocabulary_head(frame: Frame, eps: float, activation: Activation = "gelu", d_embed: int = 0) -> Head:
    keys = frame.keys
    vocab_size = keys.count("vocab_size")
    return head_of(keys, frame.d_model, vocab_size, activation=activation, eps=eps, d_embed=d_embed)


def roberta_like(
    keys: Keys, *, offset: int = 2, rows: int = 512, n_types: int = 2, own_activation: bool = False, pools: bool = True
) -> Spec:
    """Liu et al. 2019: BERT's layers, positions from row 2; own_activation: the head's is that of the layers."""
    frame, eps = frame_of(keys, rows=rows, offset=offset), eps_of(keys)
    norm, act = layer_norm(frame.d_model, eps), keys.activation(default="gelu")
    layer = encoders.post_norm_layer(frame.d_model, frame.n_heads, keys.count("intermediate_size"), act, norm)
    types = keys.count("type_vocab_size", default=n_types) if n_types else 0
    spec = stacked(
        frame,
        alike(frame, layer),
        vocabulary_head(frame, eps, act if own_activation else "gelu"),
        n_types=types,
        norm_first=norm,
        offset=offset,
    )
    return with_task(keys, spec, pools=pools)


def roberta(keys: Keys) -> Spec:
    """Its positions begin after the padding token's number."""
    return roberta_like(keys, offset=keys.count("pad_token_id", default=1, least=0) + 1)


def ernie(keys: Keys) -> Spec:
    """ERNIE (Sun et al. 2019): BERT, with a table of tasks by a switch."""
    keys.refuse_set("use_task_id", "a table of tasks cannot be said yet")
    return roberta_like(keys, offset=0, own_activation=True)


def bert_generation(keys: Keys) -> Spec:
    """Rothe et al. 2020: BERT without types, its head the table turned and a bias."""
    name = keys.architecture()
    if name and not name.endswith(("Decoder", "Encoder")):
        keys.fault("architectures", name, OWN_HEAD)
    spec = roberta_like(keys.instead({"architectures": None}), offset=0, n_types=0)
    if name.endswith("Encoder"):
        return replace(spec, head=None)
    return replace(spec, head=Head(linear=linear(spec.d_model, spec.vocab_size, True), tied=True))


def pre_norm_roberta(keys: Keys, *, offset: int, rows: int, n_types: int, norm_first: bool, own: bool = False) -> Spec:
    frame, eps = frame_of(keys, rows=rows, offset=offset), eps_of(keys, 1e-5 if not norm_first and not own else 1e-12)
    norm, act = layer_norm(frame.d_model, eps), keys.activation(default="gelu")
    second = feed_forward(frame.d_model, keys.count("intermediate_size"), act, bias=True)
    spec = stacked(
        frame,
        alike(frame, pre_norm_layer(frame.attend(None, bias=True), second, norm)),
        vocabulary_head(frame, eps, act if own else "gelu"),
        n_types=keys.count("type_vocab_size", default=n_types),
        norm_first=norm if norm_first else None,
        norm_last=norm,
        offset=offset,
    )
    return with_task(keys, spec, pools=True)


def roberta_prelayernorm(keys: Keys) -> Spec:
    return pre_norm_roberta(keys, offset=2, rows=512, n_types=2, norm_first=True)


def xlm_roberta_xl(keys: Keys) -> Spec:
    """Goyal et al. 2021: RoBERTa with the norms before."""
    return pre_norm_roberta(keys, offset=2, rows=514, n_types=1, norm_first=False)


def megatron_bert(keys: Keys) -> Spec:
    """Shoeybi et al. 2019, section 3: BERT with the norms before."""
    return pre_norm_roberta(keys, offset=0, rows=512, n_types=2, norm_first=False, own=True)


def electra(keys: Keys) -> Spec:
    """Clark et al. 2020: ALBERT's narrow table, BERT's layers; ForPreTraining says of each token whether it is real."""
    frame, eps = frame_of(keys), eps_of(keys)
    d_embed = keys.count("embedding_size", default=128)
    act, norm = keys.activation(default="gelu"), layer_norm(frame.d_model, eps)
    project = linear(d_embed, frame.d_model, bias=True) if d_embed != frame.d_model else None
    layer = encoders.post_norm_layer(frame.d_model, frame.n_heads, keys.count("intermediate_size"), act, norm)
    masked = vocabulary_head(frame, eps, "gelu", d_embed)
    spec = stacked(
        frame,
        alike(frame, layer),
        masked,
        n_types=keys.count("type_vocab_size", default=2),
        norm_first=layer_norm(d_embed, eps),
        d_embed=d_embed,
        project=project,
    )
    if keys.architecture().endswith("ForPreTraining"):
        step = linear(frame.d_model, frame.d_model, bias=True)
        real = Head(linear=linear(frame.d_model, 1, True), tied=False, transform=step, activation=act)
        return replace(spec, head=real)
    return with_task(keys, spec, pools=False, activation="gelu")


def rembert(keys: Keys) -> Spec:
    """Chung et al. 2021: a narrow table in, a wide one out."""
    frame, eps = frame_of(keys), eps_of(keys)
    d_in, d_out = keys.count("input_embedding_size", default=256), keys.count("output_embedding_size", default=1664)
    act, norm = keys.activation(default="gelu"), layer_norm(frame.d_model, eps)
    keys.refuse_set("tie_word_embeddings", "the tables in and out differ in width")
    layer = encoders.post_norm_layer(frame.d_model, frame.n_heads, keys.count("intermediate_size"), act, norm)
    head = encoders.masked_head(frame.d_model, d_out, keys.count("vocab_size"), act, eps, tied=False)
    spec = stacked(
        frame,
        alike(frame, layer),
        head,
        n_types=keys.count("type_vocab_size", default=2),
        norm_first=layer_norm(d_in, eps),
        d_embed=d_in,
        project=linear(d_in, frame.d_model, bias=True),
    )
    return with_task(keys, spec, pools=True)


def distilbert(keys: Keys) -> Spec:
    """Sanh et al. 2019: BERT with half the layers, without types and pooler, under names of its own."""
    keys.divides("n_heads", "dim")
    d_model, n_heads = keys.count("dim", "hidden_size"), keys.count("n_heads", "num_attention_heads")
    frame = Frame(
        keys=keys,
        d_model=d_model,
        n_layers=keys.layers("n_layers", "num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=max(1, d_model // n_heads),
        max_seq_len=keys.count("max_position_embeddings", default=512),
    )
    norm, act = layer_norm(d_model, 1e-12), keys.activation("activation", "gelu")
    layer = encoders.post_norm_layer(d_model, n_heads, keys.count("hidden_dim"), act, norm)
    head = vocabulary_head(frame, 1e-12, act)
    spec = stacked(frame, alike(frame, layer), head, n_types=0, norm_first=norm)
    return with_task(keys, spec, pools=False, activation="relu")


def mpnet(keys: Keys) -> Spec:
    """Song et al. 2020: BERT without types, with a bias by distance that all layers share."""
    spec = roberta_like(keys, n_types=0)
    buckets = keys.count("relative_attention_num_buckets", default=32)
    bias = RelativeBias(n_buckets=buckets, max_distance=128, n_heads=keys.count("num_attention_heads"))
    assert spec.encoder is not None  # roberta_like gives one
    return replace(spec, encoder=replace(spec.encoder, relative=bias))


def deberta_v2(keys: Keys) -> Spec:
    """He et al. 2021: scores by content and by distance; distances have a table of their own."""
    frame, eps = frame_of(keys), eps_of(keys, 1e-7)
    norm, act = layer_norm(frame.d_model, eps), keys.activation(default="gelu")
    keys.refuse_set("conv_kernel_size", "a convolution beside the first layer cannot be said yet")
    keys.refuse_set("legacy", "the newer head cannot be said yet", (None, True))
    d_embed = keys.count("embedding_size", default=frame.d_model)
    relative = keys.flag("relative_attention", False)
    words = str(keys.get("norm_rel_ebd") or "none").lower().split("|")
    normed = "layer_norm" in [word.strip() for word in words]
    if relative:
        keys.leave_unsaid("Scores by distance are not in the operations: a table of distances stands for them.")
        if not keys.flag("share_att_key", False) and keys.get("pos_att_type"):
            keys.fault("share_att_key", False, "projections of distances of their own cannot be said yet")
    elif normed:
        keys.fault("norm_rel_ebd", keys.get("norm_rel_ebd"), "needs relative_attention: it norms its table")
    far, buckets = keys.get("max_relative_positions"), keys.get("position_buckets")
    far = frame.max_seq_len if not isinstance(far, int) or far < 1 else far
    n_rows = 2 * (buckets if isinstance(buckets, int) and buckets > 0 else far)
    distances = Distances(table=Table(n_rows=n_rows, width=frame.d_model), norm=norm if normed else None)
    biased = keys.flag("position_biased_input", True)
    n_types = keys.count("type_vocab_size", default=0, least=0)
    layer = encoders.post_norm_layer(frame.d_model, frame.n_heads, keys.count("intermediate_size"), act, norm)
    spec = Spec(
        embedding=Tokens(
            table=Table(n_rows=keys.count("vocab_size"), width=d_embed),
            types=Table(n_rows=n_types, width=d_embed) if n_types else None,
            positions=Table(n_rows=frame.max_seq_len, width=d_embed) if biased else None,
            project=linear(d_embed, frame.d_model) if d_embed != frame.d_model else None,
        ),
        encoder=Stack(
            layers=alike(frame, layer), causal=False, positions=distances if relative else None, norm_first=norm
        ),
        head=vocabulary_head(frame, eps, act, d_embed),
        max_seq_len=frame.max_seq_len,
    )
    return with_task(keys, spec, pools=False, activation=keys.activation("pooler_hidden_act", "gelu"))


def eurobert(keys: Keys) -> Spec:
    """Boizard et al. 2025: Llama's layers, every token sees every other."""
    frame = Frame.of(keys, max_seq_len=8192)
    norm = rms_norm(frame.d_model, keys.real("rms_norm_eps", default=1e-5))
    mixer = frame.attend(frame.rotary(250000.0), bias=keys.flag("attention_bias", False))
    bias = keys.flag("mlp_bias", False)  # the head's too
    layers = alike(frame, pre_norm_layer(mixer, frame.dense(bias=bias), norm))
    head = Head(linear=linear(frame.d_model, keys.count("vocab_size"), bias), tied=keys.tied(False))
    spec = stacked(frame, layers, head, n_types=0, norm_first=None, norm_last=norm, positions=False)
    return with_task(keys, spec, pools=False)


def nomic_bert(keys: Keys) -> Spec:
    """Nussbaum et al. 2024: BERT without biases, gated, with rotary positions."""
    return gated_bert(keys, bias=False, theta=1000.0, n_types=2, rows=2048)


def gte(keys: Keys) -> Spec:
    """Zhang et al. 2024 (mGTE), section 2: BERT, gated, with rotary positions."""
    return gated_bert(keys, bias=True, theta=160000.0, n_types=1, rows=8192)


def gated_bert(keys: Keys, *, bias: bool, theta: float, n_types: int, rows: int) -> Spec:
    frame, eps = Frame.of(keys, max_seq_len=rows), eps_of(keys)
    norm = layer_norm(frame.d_model, eps)
    act: Activation = keys.activation(default="gelu" if bias else "silu")
    second = feed_forward(frame.d_model, keys.count("intermediate_size"), act, gated=True)
    second = replace(second, down=replace(second.down, bias=bias))
    mixer = frame.attend(frame.rotary(theta), bias=bias)
    layer = sublayer("attention", mixer, norm_sum=norm), sublayer("feed_forward", second, norm_sum=norm)
    types = keys.count("type_vocab_size", default=n_types, least=0)
    head = vocabulary_head(frame, eps, act if not bias else "gelu")
    spec = stacked(frame, alike(frame, layer), head, n_types=types, norm_first=norm, positions=False)
    return with_task(keys, spec, pools=False)


def vit(keys: Keys) -> Spec:
    """Dosovitskiy et al. 2021, section 3.1: a row for the picture, then its pieces; the answer from the first row."""
    keys.divides("num_attention_heads", "hidden_size")
    d_model, n_heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    patch, size = keys.count("patch_size", default=16), keys.count("image_size", default=224)
    n_rows = 1 + (size // patch) ** 2
    n_layers, eps = keys.layers("num_hidden_layers"), keys.real("layer_norm_eps", default=1e-12)
    frame = Frame(
        keys=keys,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=max(1, d_model // n_heads),
        max_seq_len=n_rows,
    )
    norm = layer_norm(d_model, eps)
    second = frame.dense(gated=False, bias=True, activation=keys.activation(default="gelu"))
    mixer = frame.attend(None, bias=keys.flag("qkv_bias", True), out_bias=True)
    name, head = keys.architecture(), None
    if name.endswith("Model"):
        head = encoders.pooler(d_model)
    elif name.endswith("ForImageClassification") or not name:
        head = replace(keys.answers(d_model), pool="first")
    else:
        keys.fault("architectures", name, "this head over pictures cannot be said yet")
    pieces = linear(keys.count("num_channels", default=3) * patch**2, d_model, bias=True)
    return Spec(
        embedding=Tokens(table=Table(n_rows=1, width=d_model), project=Patches(linear=pieces)),
        encoder=Stack(
            layers=alike(frame, pre_norm_layer(mixer, second, norm)),
            causal=False,
            positions=Table(n_rows=n_rows, width=d_model),
            norm_last=norm,
        ),
        head=head,
        max_seq_len=n_rows,
    )
