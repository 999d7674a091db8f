"""Which families load, and how each is held against transformers: a tiny random model is saved by its class, loaded by
us, asked, decoded, and written out again. The page docs/models.md is made of this table.

B batch, T tokens, S source tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import plainformer as pf
from plainformer.checkpoint.exporting import export
from plainformer.states import State
from strangers import N_SOURCE, N_TOKENS, STRANGERS, VOCAB, Stranger, asked, made

NEW = 14
FAMILIES: dict[str, tuple[str, ...]] = {  # strangers by their names
    "GPT-2": ("gpt2", "gpt2 base"),
    "GPT-NeoX": ("gpt_neox",),
    "Llama 1 to 3.x": ("llama", "llama 3.1", "llama linear", "llama yarn"),
    "Mistral": ("mistral",),
    "Qwen2": ("qwen2",),
    "Qwen3": ("qwen3",),
    "Gemma 1": ("gemma",),
    "Gemma 2": ("gemma2",),
    "Gemma 3, text": ("gemma3",),
    "Phi-3": ("phi3", "phi3 longrope, short", "phi3 longrope, long"),
    "OLMo 2": ("olmo2",),
    "OLMo 3": ("olmo3", "olmo3 with two bases"),
    "BLOOM": ("bloom", "bloom base"),
    "OPT": ("opt", "opt post-norm, narrow"),
    "GPT-J": ("gptj",),
    "CTRL": ("ctrl",),
    "Phi-1.5, Phi-2": ("phi", "phi with norms"),
    "XGLM": ("xglm",),
    "BioGPT": ("biogpt",),
    "StarCoder2": ("starcoder2",),
    "StableLM": ("stablelm", "stablelm side by side"),
    "Nemotron-4": ("nemotron",),
    "Command R": ("cohere",),
    "Command R7B": ("cohere2",),
    "OLMo 1": ("olmo",),
    "SmolLM3": ("smollm3",),
    "Arcee": ("arcee",),
    "Helium": ("helium",),
    "ERNIE 4.5": ("ernie4_5",),
    "Seed-OSS": ("seed_oss",),
    "CWM": ("cwm",),
    "Ministral": ("ministral",),
    "EXAONE 4": ("exaone4",),
    "GLM-4": ("glm",),
    "GLM-4-0414": ("glm4",),
    "OLMoE": ("olmoe",),
    "Mixtral": ("mixtral",),
    "Qwen2-MoE": ("qwen2_moe",),
    "Qwen3-MoE": ("qwen3_moe", "qwen3_moe normalised"),
    "DeepSeek-V2": ("deepseek_v2", "deepseek_v2 in groups"),
    "DeepSeek-V3": (
        "deepseek_v3",
        "deepseek_v3 without rank, yarn",
        "deepseek_v3 with biases",
        "deepseek_v3 in halves",
    ),
    "gpt-oss": ("gpt_oss",),
    "BERT": ("bert", "bert base"),
    "RoBERTa": ("roberta", "roberta base"),
    "DistilBERT": ("distilbert",),
    "ALBERT": ("albert", "albert in two groups", "albert with two inner groups"),
    "ModernBERT": ("modernbert", "modernbert with biases"),
    "T5, encoder and decoder": ("t5", "t5 1.1, tied", "t5 1.1, its head not scaled"),
    "T5, encoder alone": ("t5 encoder",),
    "mT5": ("mt5",),
    "BART": ("bart", "bart scaled", "bart base"),
    "mBART": ("mbart",),
    "PLBart": ("plbart",),
    "MVP": ("mvp",),
    "Marian": ("marian", "marian, nothing added"),
    "Pegasus": ("pegasus",),
    "M2M100, NLLB": ("m2m_100", "m2m_100 with another padding"),
    "Blenderbot": ("blenderbot",),
}


@dataclass(frozen=True)
class Found:
    """gap: the largest difference of logits, as a share of the largest logit (at least 1). chosen, equal: how many
    tokens transformers chose as the best, and how many of them we choose too. same: written out again, every tensor of
    the folder is as it was."""

    gap: float
    chosen: int
    equal: int
    same: bool


def headless(stranger: Stranger) -> bool:
    """A base class: its stream is its answer."""
    return stranger.name.endswith("Model") and not stranger.name.endswith(("LMHeadModel", "MTModel"))


@torch.no_grad()
def found(which: str, folder: Path) -> Found:
    """One stranger in float32, through a folder and back."""
    stranger = STRANGERS[which]
    model = made(stranger)
    model.save_pretrained(folder / "in")
    mine = pf.load(folder / "in")
    generator = torch.Generator().manual_seed(3)
    tokens_BT = torch.randint(3, VOCAB, (2, N_TOKENS), generator=generator)
    source_BS = torch.randint(3, VOCAB, (2, N_SOURCE), generator=generator) if stranger.pair else None
    types_BT = torch.randint(0, 2, tokens_BT.shape, generator=generator) if stranger.types else None
    want = asked(stranger, model, tokens_BT, source_BS, types_BT)
    memory = None if source_BS is None else mine.encode(source_BS)
    got = mine.hidden(tokens_BT, memory=memory, types_BT=types_BT)
    got = got if headless(stranger) else mine.logits(got)
    theirs_BT, ours_BT = best(stranger, model, mine, tokens_BT[:, :6], source_BS, want, got)
    export(mine, folder / "out", like=folder / "in")
    first, second = (load_file(folder / name / "model.safetensors") for name in ("in", "out"))
    return Found(
        gap=float((got - want).abs().max() / want.abs().max().clamp(min=1)),
        chosen=theirs_BT.numel(),
        equal=int((theirs_BT == ours_BT).sum()),
        same=first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first),
    )


def best(
    stranger: Stranger,
    model: nn.Module,
    mine: pf.Transformer,
    prompt_BT: Tensor,
    source_BS: Tensor | None,
    want: Tensor,
    got: Tensor,
) -> tuple[Tensor, Tensor]:
    """The best tokens by them and by us: new ones of a decoder, with a cache; of an encoder those at each place."""
    if stranger.encoder or headless(stranger):
        return want.argmax(-1), got.argmax(-1)
    told = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0}
    for name in ("eos_token_id", "forced_eos_token_id", "forced_bos_token_id"):
        setattr(model.generation_config, name, None)
    if source_BS is None:
        theirs_BT = model.generate(input_ids=prompt_BT, attention_mask=torch.ones_like(prompt_BT), **told)
        grows = "longrope" in str(mine.spec)  # past the first context its keys turn otherwise: transformers reads anew
        ours = pf.generate(mine, prompt_BT, NEW, temperature=0.0, cached=not grows).new
        return theirs_BT[:, prompt_BT.shape[1] :], torch.tensor(ours)
    theirs_BT = model.generate(input_ids=source_BS, decoder_start_token_id=5, use_cache=False, **told)
    state, rows_BT = State(len(source_BS), capacity=NEW + 1), torch.full((len(source_BS), 1), 5)
    memory = mine.encode(source_BS)
    for _ in range(NEW):
        logits_BTV = mine(rows_BT[:, state.lengths[0] :], state, memory=None if state.memory else memory)
        rows_BT = torch.cat((rows_BT, logits_BTV[:, -1:].argmax(-1)), 1)
    return theirs_BT[:, 1:], rows_BT[:, 1:]
