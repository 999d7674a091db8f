"""Rules that need no spec: bytes by dtype, operations by rule of thumb, time and money, memory of training."""

from __future__ import annotations

from plainformer.faults import refuse

# Bits of one number. int4 is half a byte a parameter: formats with scales have names of their own.
BITS = {
    "float64": 64,
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": 4,
}


def bits(dtype: str, where: str = "dtype") -> int:
    if dtype not in BITS:
        raise refuse(where, dtype, "no such dtype", f"one of {', '.join(BITS)}")
    return BITS[dtype]


def n_bytes(numbers: int, dtype: str) -> int:
    """Bytes of that many numbers, rounded up."""
    return -(-numbers * bits(dtype) // 8)


# --- operations -------------------------------------------------------------------------------------------------------


def inference_flops_per_token(parameters: int) -> int:
    """2N: each parameter multiplies and adds once. Leaves out attention's scores; counts tables that only look up."""
    return 2 * parameters


def training_flops(parameters: float, tokens: float) -> float:
    """6ND (Kaplan et al. 2020, section 2.1): forward 2N, backward twice that. Mixtures: N is what a token meets."""
    return 6 * parameters * tokens


def model_flops_per_token(parameters: int, n_layers: int, n_heads: int, d_head: int, seq_len: int) -> int:
    """6N + 12 L H Q T: training operations a token as PaLM counts them for utilisation (Chowdhery et al. 2022,
    appendix B); N without position tables, as nanoGPT's estimate_mfu."""
    return 6 * parameters + 12 * n_layers * n_heads * d_head * seq_len


def utilisation(flops_per_token: float, tokens_per_second: float, peak: float) -> float:
    """The share of a device's stated dense peak (operations a second) that goes into the model."""
    return flops_per_token * tokens_per_second / peak


def device_hours(flops: float, sustained: float) -> float:
    """Hours of one device that keeps up `sustained` operations a second."""
    return flops / sustained / 3600


# --- decoding ---------------------------------------------------------------------------------------------------------


def positions_computed(n_prompt: int, n_new: int, cached: bool) -> int:
    """Positions that pass through the layers to write n_new tokens. The last token is never fed."""
    if cached:
        return n_prompt + n_new - 1
    return sum(n_prompt + i for i in range(n_new))


# --- memory of training -----------------------------------------------------------------------------------------------

# AdamW in mixed precision: 2 weight + 2 gradient + 4 master weight + 4 + 4 moments (Rajbhandari et al. 2020, section
# 3.1). In float32 throughout it is as much: 4 weight + 4 gradient + 4 + 4 moments.
ADAMW = 16


def score_elements(batch_size: int, n_heads: int, seq_len: int) -> int:
    """Elements of one layer's attention matrix where it is written out; a fused kernel writes none."""
    return batch_size * n_heads * seq_len**2


def activation_bytes(
    *, batch_size: int, seq_len: int, d_model: int, n_heads: int, n_layers: int, recompute: bool = False
) -> int:
    """Bytes kept for the backward pass of GPT-type blocks in 16 bits with dropout, plain attention, one device:
    s b h (34 + 5 a s / h) L; 2 s b h L where each block is recomputed (Korthikanti et al. 2022, sections 4.1, 5)."""
    sbh = seq_len * batch_size * d_model
    if recompute:
        return 2 * sbh * n_layers
    return (34 * sbh + 5 * batch_size * n_heads * seq_len**2) * n_layers
