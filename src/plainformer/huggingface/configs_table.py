"""Which reader takes which model_type, and why some take none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The room (configs_<room>) and the model_types that its functions read. A function is named as its model_type, with _
# for -, unless another name follows =.
ROOMS = {
    "decoders": "gpt2 opt gpt_neox gpt-sw3=gpt2",
    "others": "bloom phi3 qwen2_moe modernbert",
    "llamas": "llama mistral qwen2 qwen3 olmo2 olmo3",
    "gemmas": "gemma gemma2 gemma3 gemma3_text=gemma3 gemma3n_text gemma4 gemma4_text=gemma4 vaultgemma",
    "mixtures": "mixtral qwen3_moe gpt_oss deepseek_v2 deepseek_v3",
    "hybrids": (
        "nemotron_h qwen3_5_moe qwen3_5_moe_text=qwen3_5_moe qwen3_next qwen3_5=qwen3_5_dense "
        "qwen3_5_text=qwen3_5_dense qwen3_vl qwen3_vl_text=qwen3_vl"
    ),
    "encoders": "bert albert",
    "encoder_decoders": "bart t5 mt5 mbart plbart mvp pegasus marian m2m_100 blenderbot blenderbot-small longt5",
    "gpts": (
        "gpt_bigcode gpt_neo gptj codegen falcon mpt phi persimmon starcoder2 stablelm cohere cohere2 "
        "nemotron jais2 gpt_neox_japanese biogpt xglm ctrl openai-gpt"
    ),
    "kin": (
        "exaone internlm3 iquestcoder helium ernie4_5 seed_oss hunyuan_v1_dense ministral ministral3 cwm "
        "arcee smollm3 olmo granite hyperclovax glm glm4 exaone4 nanochat emu3_text_model=emu3 emu3"
    ),
    "moe": (
        "olmoe hy_v3 kolibri1 mellum flex_olmo granitemoe granitemoeshared phimoe dbrx glm4_moe sarvam_moe solar_open "
        "dots1 ernie4_5_moe hunyuan_v1_moe minimax_m2 aria_text exaone_moe cohere2_moe llama4 llama4_text=llama4"
    ),
    "latents": "minicpm3 youtu glm4_moe_lite sarvam_mla",
    "states": "mamba mamba2 bamba granitemoehybrid falcon_h1 jamba lfm2 lfm2_moe olmo_hybrid falcon_mamba=mamba",
    "pieces": "bitnet diffllama apertus umt5 switch_transformers modernbert-decoder",
    "tables": "big_bird layoutlm nystromformer fnet longformer roformer roc_bert deberta led bigbird_pegasus pegasus_x",
    "media": (
        "clip clip_text_model clip_vision_model siglip siglip_text_model siglip_vision_model dinov2 "
        "whisper wav2vec2 hubert"
    ),
    "wrappers": "llava llava_next paligemma idefics3 smolvlm mistral3 internvl qwen2_vl qwen2_5_vl",
    "indexed": "deepseek_v32 glm_moe_dsa afmoe xlm flaubert",
    "bertlike": (
        "roberta xlm-roberta=roberta camembert=roberta data2vec-text=roberta ibert=roberta ernie electra "
        "rembert distilbert mpnet eurobert nomic_bert gte vit bert-generation roberta-prelayernorm "
        "xlm-roberta-xl megatron-bert deberta-v2"
    ),
}


def readers() -> dict[str, str]:
    found = {}
    for room, names in ROOMS.items():
        for entry in names.split():
            model_type, _, function = entry.partition("=")
            found[model_type] = f"{room}.{function or model_type.replace('-', '_')}"
    return found


READERS = readers()  # model_type: room.function; the function's name is also the family's

# Families that no reader takes, and what a Spec cannot say of them.
RECURRENT = "its recurrence cannot be said yet"
SOUND = "it hears: towers for sound cannot be said yet"
UNREAD = {
    "zamba": "some of its layers share their weights with others, in part",
    "zamba2": "some of its layers share their weights with others, in part",
    "recurrent_gemma": RECURRENT,
    "rwkv": RECURRENT,
    "xlstm": RECURRENT,
    "minimax": "its linear attention cannot be said yet",
    "kimi_linear": "its linear attention cannot be said yet",
    "reformer": "its layers hash and turn back",
    "funnel": "its layers shorten what they read",
    "nllb-moe": "experts in an encoder and a decoder by turns cannot be said yet",
    "jetmoe": "its attention has experts too",
    "apertus1p5_text": "its activation learns",
    "longcat_flash": "two attentions and two dense parts in each layer cannot be said yet",
    "qwen2_audio": SOUND,
    "voxtral": SOUND,
    "xlnet": "its two streams cannot be said yet",
    "convbert": "its convolutions inside attention cannot be said yet",
    "mobilebert": "its layers narrow and widen",
    "squeezebert": "its linears are in groups",
}
SUFFIXES: tuple[str, ...] = (
    "ForCausalLM",
    "ForMaskedLM",
    "ForConditionalGeneration",
    "ForSequenceClassification",
    "LMHeadModel",
)
SUFFIXES += ("ForTokenClassification", "ForQuestionAnswering", "ForPreTraining", "ForMultipleChoice")
SUFFIXES += ("ForImageClassification", "DoubleHeadsModel", "MTModel", "Model")


def of_class(name: str, config: Mapping[str, Any]) -> str | None:
    """The model_type whose class this is: "GPTNeoXForCausalLM" is gpt_neox's; the text's own where there is no
    text_config inside."""
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    plain = name.removesuffix(suffix).lower()
    known = {model_type.replace("_", "").replace("-", ""): model_type for model_type in reversed(READERS)}
    text = known.get(f"{plain}text")
    return text if text and "text_config" not in config else known.get(plain)


def family_of(config: Mapping[str, Any]) -> str | None:
    """The model_type by which a config is read: its own, else that of the class that it names, else None."""
    model_type, names = config.get("model_type"), config.get("architectures")
    if isinstance(model_type, str) and (model_type in READERS or model_type in UNREAD):
        return model_type if model_type in READERS else None
    first = names[0] if isinstance(names, list) and names else None
    return of_class(first, config) if isinstance(first, str) else None
