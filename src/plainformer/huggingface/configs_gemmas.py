"""Readers for Gemma to Gemma 4, with their towers. Absent keys take the published class's defaults."""

from __future__ import annotations

from typing import Any

from plainformer.families import gemmas, towers
from plainformer.families.parts import linear, rms_norm
from plainformer.huggingface.configs_keys import Keys
from plainformer.records import replace
from plainformer.spec import Activation, Branch, Rotary, Scaling, Spec, Tower
from plainformer.tree import rewrite


def activation(keys: Keys) -> Activation:
    """ "gelu" has always meant the tanh form in these files."""
    found = keys.activation("hidden_activation" if keys.has("hidden_activation") else "hidden_act", "gelu_pytorch_tanh")
    return "gelu_tanh" if found == "gelu" else found


def gemma(keys: Keys) -> Spec:
    keys.refuse_set("use_bidirectional_attention", "a decoder whose tokens all see each other cannot be said yet")
    n_heads, n_kv_heads, d_head = keys.heads(kv_default=16, d_head_default=256)
    max_seq_len = keys.count("max_position_embeddings", default=8192)
    return keys.with_head(
        gemmas.gemma(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_layers=keys.layers("num_hidden_layers"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size"),
            rotary=keys.rotary(d_head, max_seq_len=max_seq_len),
            activation=activation(keys),
            eps=keys.real("rms_norm_eps", default=1e-6),
            tied=keys.tied(True),
            attention_bias=keys.flag("attention_bias", False),
        )
    )


def gemma2(keys: Keys) -> Spec:
    keys.refuse_set("use_bidirectional_attention", "a decoder whose tokens all see each other cannot be said yet")
    n_heads, n_kv_heads, d_head = keys.heads(kv_default=4, d_head_default=256)
    max_seq_len = keys.count("max_position_embeddings", default=8192)
    n_layers, window = keys.layers("num_hidden_layers"), keys.count("sliding_window", default=4096)
    rotary = keys.rotary(d_head, max_seq_len=max_seq_len)
    return keys.with_head(
        gemmas.gemma2(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size"),
            windows=keys.windows(n_layers, [None if i % 2 else window for i in range(n_layers)], window),
            rotary=rotary,
            rotary_in_window=rotary,
            scale=keys.positive("query_pre_attn_scalar", 256.0) ** -0.5,
            softcap=keys.capped("attn_logit_softcapping", 50.0),
            head_softcap=keys.capped("final_logit_softcapping", 30.0),
            activation=activation(keys),
            eps=keys.real("rms_norm_eps", default=1e-6),
            tied=keys.tied(True),
            attention_bias=keys.flag("attention_bias", False),
        )
    )


def vaultgemma(keys: Keys) -> Spec:
    """Google 2025: Gemma 2 without the norms after its parts."""

    def change(part: Any) -> Any:
        return replace(part, norm_out=None) if isinstance(part, Branch) else part

    return rewrite(gemma2(keys), change)


def gemma3(keys: Keys) -> Spec:
    text = keys.sub("text_config") if keys.config.get("model_type") == "gemma3" else keys
    whole = with_tower(keys, text)
    text.refuse_set("use_bidirectional_attention", "a decoder whose tokens all see each other cannot be said yet")
    if whole and not (text.has("num_attention_heads") and text.has("vocab_size")):
        keys.note("Sizes that the published text_config leaves out are the class's defaults.")
    n_heads, d_model = text.count("num_attention_heads", default=8), text.count("hidden_size", default=2304)
    n_kv_heads, d_head = text.count("num_key_value_heads", default=4), text.count("head_dim", default=256)
    max_seq_len = text.count("max_position_embeddings", default=131072)
    n_layers, window = text.layers("num_hidden_layers", default=26), text.count("sliding_window", default=4096)
    every = text.count("sliding_window_pattern", default=6)
    pattern = [window if (i + 1) % every else None for i in range(n_layers)]
    local = text.real("rope_local_base_freq", default=10000.0)
    if text.rope_by_type():
        in_window = text.rotary(d_head, layer_type="sliding_attention", theta=local, max_seq_len=max_seq_len)
    else:
        in_window = Rotary(theta=local, n_dims=d_head)
    return keys.with_head(
        gemmas.gemma2(
            vocab_size=text.count("vocab_size", default=262208),
            max_seq_len=max_seq_len,
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=text.count("intermediate_size", default=9216),
            windows=text.windows(n_layers, pattern, window),
            rotary=text.rotary(d_head, layer_type="full_attention", theta=1000000.0, max_seq_len=max_seq_len),
            rotary_in_window=in_window,
            scale=text.positive("query_pre_attn_scalar", 256.0) ** -0.5,
            softcap=text.capped("attn_logit_softcapping", None),
            head_softcap=text.capped("final_logit_softcapping", None),
            qk_norm=True,
            activation=activation(text),
            eps=text.real("rms_norm_eps", default=1e-6),
            tied=tied(keys, text),
            attention_bias=text.flag("attention_bias", False),
            towers=(siglip(keys.sub("vision_config"), d_model),) if whole else (),
        )
    )


def with_tower(keys: Keys, text: Keys) -> bool:
    """Whether the class has the tower too; one for causal text is built from the config inside."""
    return text is not keys and not keys.architecture().endswith("ForCausalLM")


def tied(keys: Keys, text: Keys) -> bool:
    return (keys if with_tower(keys, text) else text).tied(True)


def siglip(vision: Keys, d_out: int) -> Tower:
    pools = vision.flag("vision_use_head", True)
    vision.divides("num_attention_heads", "hidden_size")
    patch, d_model = vision.count("patch_size", default=16), vision.count("hidden_size", default=768)
    eps, act = vision.real("layer_norm_eps", default=1e-6), vision.activation(default="gelu_pytorch_tanh")
    n_heads, d_ff = vision.count("num_attention_heads", default=12), vision.count("intermediate_size", default=3072)
    return towers.vision_transformer(
        d_model=d_model,
        n_layers=vision.layers("num_hidden_layers", default=12),
        n_heads=n_heads,
        d_ff=d_ff,
        d_patch=vision.count("num_channels", default=3) * patch**2,
        n_positions=(vision.count("image_size", default=224) // patch) ** 2,
        connector=(
            *((towers.pooling_head(d_model, n_heads, d_ff, act, eps),) if pools else ()),
            *(rms_norm(d_model, eps, plus_one=True), linear(d_model, d_out)),
        ),
        norm_last=True,
        activation=act,
        eps=eps,
    )


def gemma4(keys: Keys) -> Spec:
    text = keys.sub("text_config") if keys.config.get("model_type") == "gemma4" else keys
    whole = with_tower(keys, text)
    keys.refuse_set("audio_config", "a tower for sound cannot be said yet", (None,))
    text = with_layers_alike(text)
    text.refuse_set(
        "use_bidirectional_attention", "tokens that all see each other cannot be said yet", (None, "vision")
    )
    n_heads, n_kv_heads, d_head = text.heads(kv_default=4, d_head_default=256)
    d_head_full = text.count("global_head_dim", default=512)
    same = text.flag("attention_k_eq_v", False)
    n_layers, window = text.layers("num_hidden_layers"), text.count("sliding_window", default=512)
    d_ff, d_per_layer = text.count("intermediate_size"), per_layer_width(text)
    max_seq_len = text.count("max_position_embeddings", default=131072)
    sparse = text.flag("enable_moe_block", False)
    windows = text.windows(n_layers, [None if i % 6 == 5 else window for i in range(n_layers)], window)
    keys.note("The scalar of each layer, and what standardises the picture's rows, are buffers: not counted.")
    return keys.with_head(
        gemmas.gemma4(
            vocab_size=text.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=text.count("hidden_size"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            n_kv_heads_full=text.count("num_global_key_value_heads", default=n_kv_heads) if same else n_kv_heads,
            d_head=d_head,
            d_head_full=d_head_full,
            d_ff=d_ff,
            n_borrowing=borrowing_layers(text, n_layers),
            d_ff_borrowing=2 * d_ff if text.flag("use_double_wide_mlp", False) else d_ff,
            d_per_layer=d_per_layer,
            n_rows_per_layer=text.count("vocab_size_per_layer_input", default=262144),
            windows=(*windows[:-1], None),  # the last layer sees all, whatever the pattern says
            rotary=gemma4_full_rotary(text, d_head_full),
            rotary_in_window=text.rotary(d_head, layer_type="sliding_attention", max_seq_len=max_seq_len),
            keys_are_values=same,
            n_experts=text.count("num_experts") if sparse else 0,
            n_chosen=text.count("top_k_experts") if sparse else 0,
            d_expert=text.count("moe_intermediate_size") if sparse else 0,
            head_softcap=text.capped("final_logit_softcapping", None),
            activation=activation(text),
            eps=text.real("rms_norm_eps", default=1e-6),
            tied=tied(keys, text),
            attention_bias=text.flag("attention_bias", False),
            towers=(gemma4_vision(keys.sub("vision_config"), text.count("hidden_size")),)
            if whole and keys.has("vision_config")
            else (),
        )
    )


def with_layers_alike(text: Keys) -> Keys:
    """Settings of single layers as the two kinds of layers have them; others are a fault."""
    listed = text.get("per_layer_config")
    if listed is None:
        return text
    if not isinstance(listed, dict) or not all(isinstance(one, dict) for one in listed.values()):
        text.fault("per_layer_config", listed, "must be an object of objects")
        return text
    kinds = text.get("layer_types") or []
    full = {i for i, word in enumerate(kinds) if word == "full_attention"} if isinstance(kinds, list) else set()
    named = {int(name) for name in listed if str(name).isdecimal()}
    some: dict[str, Any] = next(iter(listed.values()), {})
    known = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
    if named != full or some.keys() - known.keys() or any(one != some for one in listed.values()):
        text.fault("per_layer_config", sorted(listed), "only heads that all full_attention layers share can be said")
    return text.with_also({known[name]: value for name, value in some.items() if name in known})


def per_layer_width(text: Keys, default: int = 256) -> int:
    """Of the rows that each token has in each layer; 0: it has none. The class gives some where nothing is said."""
    text.note("Rows for each layer, and the layers that borrow keys, are counted; how they are used is not said.")
    return text.count("hidden_size_per_layer_input", default=default, least=0)


def borrowing_layers(text: Keys, n_layers: int, default: int = 0) -> int:
    n = text.count("num_kv_shared_layers", default=default, least=0)
    if n > n_layers:
        text.fault("num_kv_shared_layers", n, f"must not exceed num_hidden_layers ({n_layers})")
        return 0
    return n


def gemma3n_text(keys: Keys) -> Spec:
    """Gemma 3n's decoder. Sizes of single layers, and what a layer learns of its streams, as the class has them."""
    keys.leave_unsaid("Streams side by side, rows for each layer and borrowed keys are counted, and not said.")
    n_heads, n_kv_heads = keys.count("num_attention_heads", default=8), keys.count("num_key_value_heads", default=2)
    d_head, n_layers = keys.count("head_dim", default=256), keys.layers("num_hidden_layers", default=35)
    wide, window = keys.get("intermediate_size"), keys.count("sliding_window", default=512)
    if isinstance(wide, list) and len(wide) == n_layers and all(type(n) is int and n > 0 for n in wide):
        d_ffs = wide
    elif isinstance(wide, list):
        keys.fault("intermediate_size", wide, f"must be one number, or one for each of {n_layers} layers")
        d_ffs = [1] * n_layers
    else:
        d_ffs = [keys.count("intermediate_size", default=16384)] * n_layers
    max_seq_len = keys.count("max_position_embeddings", default=32768)
    pattern = [None if (i + 1) % 5 == 0 else window for i in range(n_layers)]
    wide_theta, near_theta = 1000000.0, keys.real("rope_local_base_freq", default=10000.0)
    return keys.with_head(
        gemmas.gemma3n(
            vocab_size=keys.count("vocab_size", default=262400),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size", default=2048),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ffs=d_ffs,
            windows=keys.windows(n_layers, pattern, window),
            n_borrowing=borrowing_layers(keys, n_layers, default=15),
            rotary=keys.rotary(d_head, layer_type="full_attention", theta=wide_theta, max_seq_len=max_seq_len),
            rotary_in_window=Rotary(theta=keys.theta(near_theta, "sliding_attention"), n_dims=d_head),
            n_streams=keys.layers("altup_num_inputs", default=4),
            d_laurel=keys.count("laurel_rank", default=64),
            d_per_layer=keys.count("hidden_size_per_layer_input", default=256),
            n_rows_per_layer=keys.count("vocab_size_per_layer_input", default=262144),
            head_softcap=keys.capped("final_logit_softcapping", 30.0),
            activation=activation(keys),
            eps=keys.real("rms_norm_eps", default=1e-6),
            tied=keys.tied(True),
            attention_bias=keys.flag("attention_bias", False),
        )
    )


def gemma4_full_rotary(text: Keys, d_head: int) -> Rotary:
    """Frequencies spaced over the whole head, of which only the first share is not 0."""
    said = text.rope("full_attention")
    if said.get("rope_type", "proportional") != "proportional":
        text.fault("rope_parameters.full_attention.rope_type", said["rope_type"], "must be proportional in this family")
    text.note("The proportional rotation of the full layers is kept as a scaling of another kind: it changes no size.")
    share = ("partial_rotary_factor", text.rotary_share(0.25, "full_attention"))
    theta = text.theta(1000000.0, "full_attention")
    return Rotary(theta=theta, n_dims=d_head, scaling=Scaling(kind="other", settings=(share,)))


def gemma4_vision(vision: Keys, d_out: int) -> Tower:
    vision.note("The tower's rotation along two axes is not said: it changes no size.")
    return towers.gemma4_vision(
        d_model=vision.count("hidden_size", default=768),
        n_layers=vision.layers("num_hidden_layers", default=16),
        n_heads=vision.count("num_attention_heads", default=12),
        n_kv_heads=vision.count("num_key_value_heads", default=12),
        d_head=vision.count("head_dim", default=64),
        d_ff=vision.count("intermediate_size", default=3072),
        d_patch=3 * vision.count("patch_size", default=16) ** 2,
        n_positions=vision.count("position_embedding_size", default=10240),
        d_out=d_out,
        activation=activation(vision),
        eps=vision.real("rms_norm_eps", default=1e-6),
        attention_bias=vision.flag("attention_bias", False),
    )
