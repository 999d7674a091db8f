"""Readers for latent attention after DeepSeek: MiniCPM3, Youtu, GLM-4.7-Flash, Sarvam. Absent keys take the published
class's defaults."""

from __future__ import annotations

from plainformer.families.mixtures import latent
from plainformer.families.parts import pre_norm_layer
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_kin import rms
from plainformer.huggingface.configs_moe import DRAFTS, sparse_layers
from plainformer.huggingface.configs_moe import mixed as mixed_layers
from plainformer.huggingface.configs_parts import Frame, alike
from plainformer.mixers import LatentAttention
from plainformer.spec import Spec


def latent_frame(
    keys: Keys, *, max_seq_len: int, q_rank: int | None, kv_rank: int, widths: tuple[int, int, int]
) -> tuple[Frame, LatentAttention]:
    """widths: of a head, what is not turned, what is, and its values; all of them the class's defaults."""
    n_heads = keys.count("num_attention_heads")
    rank = keys.optional("q_lora_rank") if "q_lora_rank" in keys.config else q_rank
    d_rope = keys.count("qk_rope_head_dim", default=widths[1])
    if d_rope % 2:
        keys.fault("qk_rope_head_dim", d_rope, "must be even: dimensions are turned in pairs")
    frame = Frame(
        keys=keys,
        d_model=keys.count("hidden_size"),
        n_layers=keys.layers("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_rope + d_rope % 2,
        max_seq_len=keys.count("max_position_embeddings", default=max_seq_len),
    )
    part = latent(
        d_model=frame.d_model,
        n_heads=n_heads,
        d_nope=keys.count("qk_nope_head_dim", default=widths[0]),
        d_rope=frame.d_head,
        d_value=keys.count("v_head_dim", default=widths[2]),
        q_rank=rank,
        kv_rank=keys.count("kv_lora_rank", default=kv_rank),
        rotary=frame.rotary(interleaved=keys.flag("rope_interleave", True)),
        attention_bias=keys.flag("attention_bias", False),
    )
    return frame, part


def minicpm3(keys: Keys) -> Spec:
    """Hu et al. 2024: latent attention, a dense part, multipliers that follow the depth."""
    keys.leave_unsaid("What each part adds is multiplied by scale_depth over the root of the depth: not said.")
    frame, part = latent_frame(keys, max_seq_len=32768, q_rank=768, kv_rank=256, widths=(64, 32, 64))
    norm, base = rms(frame, 1e-5), keys.count("dim_model_base", default=256)
    layers = alike(frame, pre_norm_layer(part, frame.dense(bias=keys.flag("mlp_bias", False)), norm))
    scale = keys.real("scale_emb", default=12.0)
    return frame.whole(layers, norm, tied=True, scale=scale, head_scale=base / frame.d_model)


def youtu(keys: Keys) -> Spec:
    """Tencent 2025 (Youtu-LLM): latent attention, a dense part, tied."""
    frame, part = latent_frame(keys, max_seq_len=131072, q_rank=1536, kv_rank=512, widths=(128, 64, 128))
    norm = rms(frame)
    return frame.whole(alike(frame, pre_norm_layer(part, frame.dense(), norm)), norm, tied=True)


def glm4_moe_lite(keys: Keys) -> Spec:
    return latent_experts(keys, max_seq_len=202752, q_rank=768, widths=(192, 64, 256), eps=1e-5, factor=1.8)


def sarvam_mla(keys: Keys) -> Spec:
    """Sarvam 2026, which DeepSeek-V3's class builds."""
    return latent_experts(keys, max_seq_len=4096, q_rank=None, widths=(128, 64, 128), eps=1e-6, factor=2.5)


def latent_experts(
    keys: Keys, *, max_seq_len: int, q_rank: int | None, widths: tuple[int, int, int], eps: float, factor: float
) -> Spec:
    """DeepSeek-V3 with the first layer dense."""
    if keys.get("num_nextn_predict_layers", "num_mtp_layers"):
        keys.note(DRAFTS)
    frame, part = latent_frame(keys, max_seq_len=max_seq_len, q_rank=q_rank, kv_rank=512, widths=widths)
    d_expert = keys.count("moe_intermediate_size")
    experts = frame.experts(
        frame.sigmoid("n_routed_experts", "num_local_experts", factor=factor),
        d_expert,
        d_shared=keys.count("n_shared_experts", default=1, least=0) * d_expert,
    )
    return mixed_layers(frame, sparse_layers(frame, 1), part, experts, rms(frame, eps))
