"""Configs for the tests: published models by their few keys, and tiny ones of each family, their switches drawn."""

from __future__ import annotations

import random
from typing import Any

Config = dict[str, Any]


def sized(model_type: str, width: int, layers: int, heads: int, ff: int, vocab: int, **more: Any) -> Config:
    """The keys that most decoders share, under their commonest names."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    return {"model_type": model_type} | dict(zip(names, (width, layers, heads, ff, vocab), strict=True)) | more


def t5(model_type: str, width: int, layers: int, heads: int, d_kv: int, ff: int, vocab: int, **more: Any) -> Config:
    names = ("d_model", "num_layers", "num_heads", "d_kv", "d_ff", "vocab_size")
    return {"model_type": model_type} | dict(zip(names, (width, layers, heads, d_kv, ff, vocab), strict=True)) | more


NEMOTRON = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

# Published models, each by the few keys of its file that are not its class's defaults: (all parameters, those that one
# token meets, both tables included).
PUBLISHED: dict[str, tuple[int, int | None, Config]] = {
    "gpt2": (
        124_439_808,
        None,
        {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257},
    ),
    "llama-3-8b": (8_030_261_248, None, sized("llama", 4096, 32, 32, 14336, 128256, num_key_value_heads=8)),
    "llama-1-7b": (6_738_415_616, None, sized("llama", 4096, 32, 32, 11008, 32000)),
    "llama-3.2-1b": (
        1_235_814_400,
        None,
        sized("llama", 2048, 16, 32, 8192, 128256, num_key_value_heads=8, tie_word_embeddings=True),
    ),
    "mistral-7b": (7_241_732_096, None, sized("mistral", 4096, 32, 32, 14336, 32000)),
    "mistral-nemo": (12_247_782_400, None, sized("mistral", 5120, 40, 32, 14336, 131072, head_dim=128)),
    "qwen2-0.5b": (
        494_032_768,
        None,
        sized("qwen2", 896, 24, 14, 4864, 151936, num_key_value_heads=2, tie_word_embeddings=True),
    ),
    "qwen3-0.6b": (
        596_049_920,
        None,
        sized("qwen3", 1024, 28, 16, 3072, 151936, num_key_value_heads=8, tie_word_embeddings=True),
    ),
    "olmo2-7b": (7_298_617_344, None, sized("olmo2", 4096, 32, 32, 11008, 100352)),
    "olmo3-32b": (32_233_522_176, None, sized("olmo3", 5120, 64, 40, 27648, 100278, num_key_value_heads=8)),
    "pythia-70m": (70_426_624, None, sized("gpt_neox", 512, 6, 8, 2048, 50304)),
    "opt-350m": (
        331_196_416,
        None,
        sized("opt", 1024, 24, 16, 1, 50272, ffn_dim=4096, word_embed_proj_dim=512, do_layer_norm_before=False),
    ),
    "gemma-2b": (2_506_172_416, None, sized("gemma", 2048, 18, 8, 16384, 256000, num_key_value_heads=1)),
    "gemma-2-2b": (2_614_341_888, None, sized("gemma2", 2304, 26, 8, 9216, 256000)),
    "gemma-3-4b": (
        4_300_079_472,
        None,
        {
            "model_type": "gemma3",
            "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34},
            "vision_config": sized("siglip_vision_model", 1152, 27, 16, 4304, 1)
            | {"image_size": 896, "patch_size": 14, "vision_use_head": False},
        },
    ),
    "gemma-4-26b-a4b": (
        25_805_933_872,
        4_395_322_672,
        {
            "model_type": "gemma4",
            "text_config": sized("gemma4_text", 2816, 30, 16, 2112, 262144, num_key_value_heads=8)
            | {"attention_k_eq_v": True, "num_global_key_value_heads": 2, "hidden_size_per_layer_input": 0}
            | {"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704},
            "vision_config": sized("gemma4_vision", 1152, 27, 16, 4304, 1, num_key_value_heads=16, head_dim=72),
        },
    ),
    "mixtral-8x7b": (
        46_702_792_704,
        12_879_925_248,
        sized("mixtral", 4096, 32, 32, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
    ),
    "bloom-560m": (
        559_214_592,
        None,
        {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880},
    ),
    "phi-4": (14_659_507_200, None, sized("phi3", 5120, 40, 40, 17920, 100352, num_key_value_heads=10)),
    "qwen1.5-moe-a2.7b": (
        14_315_784_192,
        2_689_173_504,
        sized("qwen2_moe", 2048, 24, 16, 5632, 151936, num_key_value_heads=16),
    ),
    "qwen3-30b-a3b": (
        30_532_122_624,
        3_353_032_704,
        sized("qwen3_moe", 2048, 48, 32, 6144, 151936, head_dim=128)
        | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    ),
    "gpt-oss-20b": (
        20_914_757_184,
        4_187_440_704,
        sized("gpt_oss", 2880, 24, 64, 2880, 201088, num_local_experts=32, num_experts_per_tok=4),
    ),
    "deepseek-v2": (
        235_741_434_880,
        21_375_800_320,
        sized("deepseek_v2", 5120, 60, 128, 12288, 102400, first_k_dense_replace=1)
        | {"n_routed_experts": 160, "num_experts_per_tok": 6, "moe_intermediate_size": 1536},
    ),
    "deepseek-v3": (
        671_026_404_352,
        37_552_282_624,
        sized("deepseek_v3", 7168, 61, 128, 18432, 129280)
        | {"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048},
    ),
    "nemotron-3-nano": (
        31_577_937_344,
        3_580_073_408,
        sized("nemotron_h", 2688, 52, 32, 1856, 131072, num_key_value_heads=2, hybrid_override_pattern=NEMOTRON)
        | {"mamba_head_dim": 64, "mamba_num_heads": 64, "ssm_state_size": 128, "moe_intermediate_size": 1856}
        | {"moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128, "num_experts_per_tok": 6},
    ),
    "qwen3.5-35b-a3b": (
        35_107_181_936,
        3_901_560_176,
        {
            "model_type": "qwen3_5_moe",
            "text_config": sized("qwen3_5_moe_text", 2048, 40, 16, 1, 248320, num_experts=256, num_experts_per_tok=8)
            | {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
            "vision_config": {"out_hidden_size": 2048},
        },
    ),
    "bert-base": (109_514_298, None, sized("bert", 768, 12, 12, 3072, 30522)),
    "arctic-embed-m": (109_482_240, None, sized("bert", 768, 12, 12, 3072, 30522, architectures=["BertModel"])),
    "albert-xxlarge": (206_368_944, None, sized("albert", 4096, 12, 64, 16384, 30000)),
    "modernbert-base": (149_655_232, None, sized("modernbert", 768, 22, 12, 1152, 50368)),
    "bart-base": (
        139_420_416,
        None,
        {"model_type": "bart", "architectures": ["BartModel"], "d_model": 768, "vocab_size": 50265}
        | {f"{stack}_{key}": n for stack in ("encoder", "decoder") for key, n in (("layers", 6), ("ffn_dim", 3072))}
        | {"encoder_attention_heads": 12, "decoder_attention_heads": 12},
    ),
    "t5-small": (60_506_624, None, t5("t5", 512, 6, 8, 64, 2048, 32128)),
    "t5-11b": (11_307_321_344, None, t5("t5", 1024, 24, 128, 128, 65536, 32128)),
    "t5-v1_1-base": (247_577_856, None, t5("t5", 768, 12, 12, 64, 2048, 32128, **V1_1)),
    "mt5-small": (300_176_768, None, t5("mt5", 512, 8, 6, 64, 1024, 250112, tie_word_embeddings=False)),
}

QWEN_VL_2B = sized("qwen2_vl", 1536, 28, 12, 8960, 151936, num_key_value_heads=2, tie_word_embeddings=True)
QWEN_VL_7B = sized("qwen2_5_vl", 3584, 28, 28, 18944, 152064, num_key_value_heads=4)
WIDE = {"encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20, "decoder_attention_heads": 20}
WIDE |= {"encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "d_model": 1280, "num_mel_bins": 128, "vocab_size": 51866}

# Published models that answer for their sizes alone: (all parameters, the class that holds them).
SIZED: dict[str, tuple[int, str, Config]] = {
    "bitnet-2b-4t": (
        2_412_820_480,
        "BitNetForCausalLM",
        sized("bitnet", 2560, 30, 20, 6912, 128256, num_key_value_heads=5, tie_word_embeddings=True),
    ),
    "clip-vit-base-patch32": (151_277_313, "CLIPModel", {"model_type": "clip"}),
    "clip-vit-large-patch14": (
        427_616_513,
        "CLIPModel",
        {
            "model_type": "clip",
            "projection_dim": 768,
            "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
            "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
            | {"num_attention_heads": 16, "patch_size": 14},
        },
    ),
    "siglip-base-patch16-224": (203_155_970, "SiglipModel", {"model_type": "siglip"}),
    "whisper-tiny": (37_760_640, "WhisperForConditionalGeneration", {"model_type": "whisper"}),
    "whisper-large-v3": (1_543_490_560, "WhisperForConditionalGeneration", {"model_type": "whisper"} | WIDE),
    "wav2vec2-base-960h": (94_396_320, "Wav2Vec2ForCTC", {"model_type": "wav2vec2"}),
    "longformer-base-4096": (
        148_711_257,
        "LongformerForMaskedLM",
        sized("longformer", 768, 12, 12, 3072, 50265, max_position_embeddings=4098, type_vocab_size=1),
    ),
    "llava-1.5-7b": (
        7_063_427_072,
        "LlavaForConditionalGeneration",
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
            "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096}
            | {"num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336, "patch_size": 14},
        },
    ),
    "qwen2-vl-2b": (
        2_208_985_600,
        "Qwen2VLForConditionalGeneration",
        QWEN_VL_2B | {"vision_config": {"hidden_size": 1536}},
    ),
    "qwen2.5-vl-7b": (
        8_292_166_656,
        "Qwen2_5_VLForConditionalGeneration",
        QWEN_VL_7B | {"vision_config": {"hidden_size": 1280, "out_hidden_size": 3584}},
    ),
}


# Tiny configs, their switches drawn at random: what a stranger builds from them is the truth.
TINY = sized("", 32, 3, 4, 44, 61, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = {"num_experts": 6, "num_local_experts": 6, "n_routed_experts": 6, "num_experts_per_tok": 2}
EXPERTS |= {"moe_intermediate_size": 20, "n_group": 2, "topk_group": 1, "n_shared_experts": 2}
LATENT = {"q_lora_rank": [None, 8], "kv_lora_rank": [10], "qk_nope_head_dim": [6], "qk_rope_head_dim": [4]}
LATENT |= {"v_head_dim": [5], "first_k_dense_replace": [0, 1], "attention_bias": [True, False]}
GROUPED: dict[str, list[Any]] = {"num_key_value_heads": [1, 2, 4], "tie_word_embeddings": [True, False, None]}
BIASED = GROUPED | {"attention_bias": [True, False, None]}
GPT2_KEYS = {"n_embd": [24], "n_layer": [2], "n_head": [3], "n_positions": [16], "n_inner": [None, 40]}
T5_KEYS = {"d_model": [24], "d_kv": [5], "d_ff": [44], "num_layers": [2], "num_heads": [3]}
T5_KEYS |= {"num_decoder_layers": [None, 3], "feed_forward_proj": ["relu", "gated-gelu"]}
BART_KEYS = {"d_model": [24], "encoder_layers": [1], "decoder_layers": [2], "encoder_ffn_dim": [20]}
BART_KEYS |= {"decoder_ffn_dim": [28], "encoder_attention_heads": [2], "decoder_attention_heads": [3]}
MAMBA = {"mamba_num_heads": [4], "mamba_head_dim": [6], "ssm_state_size": [8], "n_groups": [2]}
MAMBA |= {"hybrid_override_pattern": ["M*-E", "ME*M"], "num_hidden_layers": [4], "use_conv_bias": [True, False]}
STRANGERS: dict[str, tuple[str, dict[str, list[Any]]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2_KEYS | {"tie_word_embeddings": [True, False, None]}),
    "opt": (
        "OPTForCausalLM",
        {"ffn_dim": [44], "word_embed_proj_dim": [None, 16], "do_layer_norm_before": [True, False]}
        | {"enable_bias": [True, False], "layer_norm_elementwise_affine": [True, False]},
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {"use_parallel_residual": [True, False], "attention_bias": [True, False], "tie_word_embeddings": [True, None]},
    ),
    "llama": ("LlamaForCausalLM", BIASED | {"mlp_bias": [True, False, None], "head_dim": [None, 6, 10]}),
    "mistral": ("MistralForCausalLM", GROUPED | {"head_dim": [None, 10], "sliding_window": [None, 8]}),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "olmo2": ("Olmo2ForCausalLM", BIASED),
    "olmo3": ("Olmo3ForCausalLM", BIASED),
    "gemma": ("GemmaForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "gemma2": ("Gemma2ForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "gemma3_text": ("Gemma3ForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "gemma4_text": (
        "Gemma4ForCausalLM",
        {"hidden_size_per_layer_input": [0], "head_dim": [8], "global_head_dim": [12], "num_key_value_heads": [2]}
        | {"attention_k_eq_v": [True, False], "num_global_key_value_heads": [None, 1], "top_k_experts": [2]}
        | {"enable_moe_block": [True, False], "num_hidden_layers": [7]},
    ),
    "mixtral": ("MixtralForCausalLM", GROUPED),
    "bloom": ("BloomForCausalLM", {"hidden_size": [24], "num_attention_heads": [3, 6]}),
    "phi3": ("Phi3ForCausalLM", GROUPED),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        GROUPED
        | {"decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [1]], "qkv_bias": [True, False, None]}
        | {"shared_expert_intermediate_size": [14]},
    ),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        BIASED | {"decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [1]], "head_dim": [None, 10]},
    ),
    "gpt_oss": ("GptOssForCausalLM", {"num_key_value_heads": [2], "head_dim": [6], "attention_bias": [True, False]}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", LATENT),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT),
    "nemotron_h": (
        "NemotronHForCausalLM",
        MAMBA
        | {"mlp_bias": [True, False], "use_bias": [True, False], "moe_shared_expert_intermediate_size": [14]}
        | {"num_key_value_heads": [2], "head_dim": [5]},
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeForCausalLM",
        {"linear_num_key_heads": [2], "linear_num_value_heads": [4], "linear_key_head_dim": [6]}
        | {"linear_value_head_dim": [5], "shared_expert_intermediate_size": [14], "head_dim": [16]}
        | {"num_key_value_heads": [2], "num_hidden_layers": [5]},
    ),
    "bert": ("BertForMaskedLM", {"type_vocab_size": [1, 2]}),
    "albert": ("AlbertForMaskedLM", {"embedding_size": [10], "num_hidden_groups": [1, 3], "inner_group_num": [1, 2]}),
    "modernbert": (
        "ModernBertForMaskedLM",
        {"norm_bias": [True, False], "attention_bias": [True, False], "mlp_bias": [True, False, None]}
        | {"classifier_bias": [True, False], "decoder_bias": [True, False], "cls_token_id": [0], "sep_token_id": [0]},
    ),
    "bart": ("BartForConditionalGeneration", BART_KEYS),
    "t5": ("T5ForConditionalGeneration", T5_KEYS),
    "mt5": ("MT5ForConditionalGeneration", T5_KEYS),
}


TWINS = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "qwen3_5_moe": "qwen3_5_moe_text"}  # wrapper: its text


def tiny(model_type: str, draw: random.Random) -> Config:
    switches = {key: draw.choice(options) for key, options in STRANGERS[model_type][1].items()}
    experts = EXPERTS if any(word in model_type for word in ("mo", "mix", "oss", "deep", "gemma4")) else {}
    shared = TINY if {"n_embd", "d_model"}.isdisjoint(switches) else {"vocab_size": 61, "pad_token_id": 0}
    config = shared | experts | {"model_type": model_type} | switches
    return {key: value for key, value in config.items() if value is not None or key == "q_lora_rank"}
