"""GGUF of every family that is read: written with the gguf package's names from transformers' tiny models, read back as
transformers reads it, sized by its header, and written with from the command line by the tokenizer inside."""

from __future__ import annotations

import json
import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import plainformer as pf
from plainformer.checkpoint.single import in_halves
from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.huggingface.gguf_files import FORMS, as_written, read_model
from plainformer.ledger import Ledger
from plainformer.text import Tokenizer
from strangers import Stranger, made

gguf = pytest.importorskip("gguf", reason="the gguf package is absent")

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
WIDE = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 5}
PHI_ROPE = {"rope_type": "longrope", "rope_theta": 5000.0, "original_max_position_embeddings": 8}
PHI_ROPE |= {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [1.5 + i / 2 for i in range(8)]}


class Case:
    """A family: the class of transformers, its config, and whether transformers reads its GGUF too."""

    def __init__(self, name: str, settings: dict[str, Any], theirs: bool = True, more: Any = ()) -> None:
        self.stranger, self.theirs, self.more = Stranger(name, SIZES | settings), theirs, dict(more)


CASES = {
    "llama": Case("LlamaForCausalLM", ROPE | {"tie_word_embeddings": True}),
    "qwen2": Case("Qwen2ForCausalLM", ROPE),
    "qwen3": Case("Qwen3ForCausalLM", ROPE | {"head_dim": 32}, more={"key_length": 32}),
    "llama with experts": Case("MixtralForCausalLM", ROPE | {"num_local_experts": 4, "num_experts_per_tok": 2}, False),
    "qwen2moe": Case("Qwen2MoeForCausalLM", ROPE | EXPERTS | {"shared_expert_intermediate_size": 96}),
    "qwen3moe": Case("Qwen3MoeForCausalLM", ROPE | EXPERTS | {"head_dim": 16, "norm_topk_prob": True}),
    "phi3": Case("Phi3ForCausalLM", {"rope_parameters": PHI_ROPE, "original_max_position_embeddings": 8}, False),
    "olmo2": Case("Olmo2ForCausalLM", ROPE, False),
    "gemma": Case("GemmaForCausalLM", ROPE | {"head_dim": 32}, False, {"key_length": 32}),
    "gemma2": Case("Gemma2ForCausalLM", ROPE | WIDE, False, {"key_length": 32}),
    "gemma3": Case("Gemma3ForCausalLM", WIDE | {"num_hidden_layers": 7}, False, {"key_length": 32}),
}


def in_pairs(rows: Tensor, n_heads: int) -> Tensor:
    """Halves of each head to pairs side by side, as llama.cpp's converter does."""
    return rows.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def files_of(which: str, folder: Path, kind: str = "F32") -> Any:
    """(transformers' model, its folder; beside it model.gguf, as llama.cpp's converter writes it)."""
    case = CASES[which]
    model = made(case.stranger)
    model.save_pretrained(folder)
    config, held = model.config, load_file(folder / "model.safetensors")
    arch = which.partition(" ")[0]
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()), config.num_hidden_layers)
    writer = gguf.GGUFWriter(folder / "model.gguf", arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch != "gemma3":
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    else:
        writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
        writer.add_sliding_window(5)
    for name, value in case.more.items():
        getattr(writer, f"add_{name}")(value)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
        writer.add_sliding_window(5)
    if n_experts := getattr(config, "num_local_experts", getattr(config, "num_experts", None)):
        writer.add_expert_count(n_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if arch == "phi3":
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
        writer.add_rope_scaling_orig_ctx_len(8)
        for length in ("long", "short"):
            row = np.array(PHI_ROPE[f"{length}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", row)
    stacks: dict[str, dict[int, Tensor]] = {}
    for name, tensor in held.items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        rows = in_pairs(tensor, heads) if heads and arch == "llama" else tensor
        rows = rows + 1 if "gemma" in arch and name.endswith("norm.weight") else rows
        rows = rows[0] if name.endswith("shared_expert_gate.weight") else rows
        if found := re.fullmatch(r"(.*experts)\.(\d+)\.(.*)", name):
            stacks.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = rows
            continue
        add(writer, names.get_name(name, try_suffixes=(".weight", ".bias")), rows, kind)
    for name, one in stacks.items():
        rows = torch.stack([one[e] for e in range(len(one))])
        add(writer, names.get_name(name, try_suffixes=(".weight",)), rows, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def add(writer: Any, name: str, rows: Tensor, kind: str) -> None:
    to = getattr(gguf.GGMLQuantizationType, "F32" if rows.ndim == 1 else kind)
    array = rows.contiguous().float().numpy()
    writer.add_tensor(name, array if to.name == "F32" else gguf.quants.quantize(array, to), raw_dtype=to)


TOKENS_BT = torch.arange(3, 43).reshape(2, 20)


@pytest.mark.parametrize("which", CASES)
def test_a_file_is_the_model_that_it_was_made_from(which: str, tmp_path: Path) -> None:
    theirs, mine = files_of(which, tmp_path), pf.load(tmp_path / "model.gguf")
    plain = pf.load(tmp_path)
    assert mine.spec == plain.spec
    for (name, a), b in zip(mine.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b) or (CASES[which].stranger.name.startswith("Gemma") and torch.allclose(a, b)), name
    with torch.no_grad():
        want = theirs(TOKENS_BT).logits
        assert float((mine(TOKENS_BT) - want).abs().max()) <= 2e-5 * max(1.0, float(want.abs().max()))


@pytest.mark.parametrize("which", [name for name, case in CASES.items() if case.theirs])
def test_packed_numbers_are_read_as_transformers_reads_them(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    config = files_of(which, tmp_path, "Q8_0").config
    monkeypatch.setattr(transformers.modeling_utils, "is_accelerate_available", lambda: True)  # asked for, not needed
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", config=config, dtype=torch.float32
    ).eval()
    mine = pf.load(tmp_path / "model.gguf")
    with torch.no_grad():
        want = theirs(TOKENS_BT).logits
        assert float((mine(TOKENS_BT) - want).abs().max()) <= 2e-5 * max(1.0, float(want.abs().max()))


def test_every_form_but_gpt2s_is_held_here() -> None:
    assert CASES.keys() == FORMS.keys() - {"gpt2", "bert"}


@pytest.mark.parametrize("which", ["llama", "llama with experts", "qwen2moe"])
def test_a_file_is_sized_by_its_header(
    which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly, without torch and without the gguf package; what is packed keeps its bytes."""
    model = files_of(which, tmp_path, "Q8_0")
    file = tmp_path / "model.gguf"
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    assert main(["size", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"]["total"] == model.num_parameters() == Ledger.of(read_model(str(file)).reading.spec).total
    n_bytes = 0
    for one in gguf.GGUFReader(file).tensors:
        n_bytes += int(one.n_bytes)
    stored = told["weights_bytes"]["as_stored"]
    assert n_bytes <= stored < n_bytes + 32 * len(gguf.GGUFReader(file).tensors)
    assert any("Q8_0" in note for note in told["notes"]), told["notes"]
    assert main(["size", str(file), "--what-if", "vocab_size=1000", "--device", "h100", "--json"]) == 0
    other = json.loads(capsys.readouterr().out)  # no file says how the model that it would be is stored
    assert other["parameters"]["total"] > told["parameters"]["total"]
    assert (other["weights_bytes"]["as_stored"], other["device"]["dtype"]) == (None, "bfloat16")
    assert other["device"]["memory_needed"] == other["weights_bytes"]["bfloat16"] + other["kv_cache"]["bytes"]


def test_old_files_hold_their_experts_one_by_one(tmp_path: Path) -> None:
    files_of("llama with experts", tmp_path)
    file = read_model(str(tmp_path / "model.gguf")).file
    first = file.tensors.pop("blk.0.ffn_up_exps.weight")
    from plainformer.huggingface.gguf_files import pieces_of

    form = FORMS["llama with experts"]
    ((name, piece),) = pieces_of(form.names, "blk.0.ffn_up.3.weight", first, "")
    assert name == "model.layers.0.block_sparse_moe.experts.3.w3.weight"
    assert piece.shape == first.shape
    assert dict(pieces_of(form.names, "blk.0.ffn_up_exps.weight", first, "")).keys() == {
        name.replace(".3.", f".{e}.") for e in range(4)
    }


@pytest.mark.parametrize("value", [1e-5, 1e-6, 10000.0, 0.1, 1 / 3, 8.0, 5e5])
def test_a_float32_is_said_as_it_was_written(value: float) -> None:
    narrow = struct.unpack("<f", struct.pack("<f", value))[0]
    assert as_written(narrow) == (value if value != 1 / 3 else 0.33333334)


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("general.architecture", "mamba", "general.architecture = 'mamba'"),
        ("llama.block_count", None, "llama.block_count = None: is missing"),
        ("llama.rope.dimension_count", 6, "llama.rope.dimension_count = 6"),
        ("llama.attention.head_count", 7, "must divide num_attention_heads (7)"),
        ("llama.attention.head_count", [4, 4, 4], "num_attention_heads"),
        ("llama.rope.scaling.type", "su", "llama.rope.scaling.type = 'su'"),
    ],
)
def test_keys_that_cannot_be_are_refused_by_name(
    key: str, value: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files_of("llama", tmp_path)
    from plainformer.huggingface import gguf_files

    found = gguf_files.read_gguf(str(tmp_path / "model.gguf"))
    found.keys.pop(key, None)
    found.keys.update({} if value is None else {key: value})
    monkeypatch.setattr(gguf_files, "read_gguf", lambda path: found)
    with pytest.raises(PlainformerError) as caught:
        pf.load(tmp_path / "model.gguf")
    assert said in str(caught.value)
    assert main(["size", str(tmp_path / "model.gguf")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("which", CASES)
def test_a_key_of_another_kind_is_read_or_refused(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files_of(which, tmp_path)
    from plainformer.huggingface import gguf_files

    whole, n_refused = gguf_files.read_gguf(str(tmp_path / "model.gguf")), 0
    family, more = which.partition(" ")[0], ("attention.key_length", "rope.dimension_count", "rope.scaling.factor")
    for key in (*whole.keys, *(f"{family}.{one}" for one in more)):
        for value in (
            "x",
            "",
            [],
            [1],
            ["x"],
            1e300,
            -1e300,
            3.4028235e38,
            float("nan"),
            float("inf"),
            True,
            -1,
            0,
            2**63,
        ):
            found = gguf_files.File(whole.keys | {key: value}, whole.tensors, whole.size)
            monkeypatch.setattr(gguf_files, "read_gguf", lambda path, found=found: found)
            try:
                read_model(str(tmp_path / "model.gguf"))
            except PlainformerError:
                n_refused += 1
    assert n_refused > 50


@pytest.mark.parametrize("which", ["llama with experts", "phi3", "gemma3"])
def test_a_header_changed_at_random_is_a_model_or_a_refusal(which: str, tmp_path: Path) -> None:
    files_of(which, tmp_path)
    whole, bad, draw = (tmp_path / "model.gguf").read_bytes(), tmp_path / "bad.gguf", random.Random(3)
    n_refused = 0
    for _ in range(30):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 3))):
            data[draw.randrange(4000)] = draw.randrange(256)
        bad.write_bytes(data)
        try:
            read_model(str(bad))
            pf.load(bad)
        except PlainformerError:
            n_refused += 1
    assert n_refused > 10
    for n in (23, 900, len(whole) - 9):
        bad.write_bytes(whole[:n])
        with pytest.raises(PlainformerError, match=r"bad\.gguf"):
            pf.load(bad)


def test_a_header_of_many_values_is_refused_unread(tmp_path: Path) -> None:
    """A list of bytes is some thirty times as large in memory."""
    start = struct.pack("<4sIQQQ1s", b"GGUF", 3, 0, 1, 1, b"a") + struct.pack("<II", 9, 0)
    keys = b"".join(struct.pack("<Q3sI1s", 3, n.to_bytes(3, "little"), 0, b"x") for n in range(2_000_001))
    for data in (
        start + struct.pack("<Q", 2_000_001) + bytes(2_000_001),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 2_000_001) + keys,
    ):
        (tmp_path / "bad.gguf").write_bytes(data)
        with pytest.raises(PlainformerError, match=r"bad\.gguf = .*: says over 2,000,000 values"):
            pf.load(tmp_path / "bad.gguf")


def test_a_header_of_many_experts_is_refused_before_they_are_listed(tmp_path: Path) -> None:
    """A few kilobytes that stand for 600,000 matrices."""

    def text(said: str) -> bytes:
        return struct.pack("<Q", len(said)) + said.encode()

    data = (
        struct.pack("<4sIQQ", b"GGUF", 3, 60, 1)
        + text("general.architecture")
        + struct.pack("<I", 8)
        + text("qwen3moe")
    )
    for i in range(60):
        data += text(f"blk.{i}.ffn_gate_exps.weight") + struct.pack("<IQQQIQ", 3, 1, 1, 10_000, 0, 0)
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(PlainformerError, match=r"bad\.gguf = 600000: matrices of single experts: over 50,000"):
        read_model(str(tmp_path / "bad.gguf"))


# --- the tokenizer inside ---------------------------------------------------------------------------------------------

TEXTS = (
    "Once upon a time there were 1234 dogs.",
    " two  spaces\n\n\tand 7 tabs",
    "don't, é 漢字 <|im_end|>",
    "x=10**2",
)
SMOL = "{% for m in messages %}{{ bos_token + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
SMOL += "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def cut_in_digits() -> Any:
    """A tokenizer as SmolLM's: byte-level merges, each digit alone, whatever merges there are; by the library."""
    from tokenizers import Tokenizer as Made
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = Made(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=list(CONTROL), initial_alphabet=alphabet)
    made.train_from_iterator([*TEXTS, "the dogs of the time were there, and there were 12 of them"] * 3, trainer)
    content = json.loads(made.to_str())
    for pair in (["1", "2"], ["\u0120", "1"]):
        content["model"]["vocab"]["".join(pair)] = len(content["model"]["vocab"])
        content["model"]["merges"].append(pair)
    return Made.from_str(json.dumps(content))


def small_llama(folder: Path, made: Any, **keys: Any) -> Any:
    """As SmolLM2 135M is published: a Llama with a tied head in 8 bits, its tokenizer in the file."""
    from transformers import LlamaConfig, LlamaForCausalLM

    n = made.get_vocab_size()
    sizes = {"vocab_size": n, "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 64}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True, rope_theta=1e5)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * (p.shape[-1] ** -0.5 if p.dim() > 1 else 0.1))
    writer = gguf.GGUFWriter(folder / "small.gguf", "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(96)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_rope_dimension_count(32)
    writer.add_rope_freq_base(1e5)
    writer.add_head_count(3)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    content = json.loads(made.to_str())["model"]
    tokens = sorted(made.get_vocab(), key=made.get_vocab().get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(keys.get("pre", "smollm"))
    writer.add_token_list(tokens)
    writer.add_token_types([1 if keys.get("untyped") else 3 if token in CONTROL else 1 for token in tokens])
    if not keys.get("bare"):
        writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in content["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(keys.get("bos", False))
    writer.add_add_eos_token(keys.get("eos", False))
    writer.add_chat_template(SMOL)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            heads = {"q_proj": 3, "k_proj": 1}.get(name.split(".")[-2])
            rows = in_pairs(tensor, heads) if heads else tensor
            add(writer, names.get_name(name, try_suffixes=(".weight",)), rows, "Q8_0")
            if rows.ndim > 1:
                packed = gguf.quants.quantize(rows.contiguous().numpy(), gguf.GGMLQuantizationType.Q8_0)
                back = torch.from_numpy(gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0))
                tensor.copy_(in_halves(back, heads) if heads else back)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_a_small_llama_in_one_file_goes_on_with_a_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line, with no other file: transformers on the same numbers writes the same."""
    made = cut_in_digits()
    model, file = small_llama(tmp_path, made), str(tmp_path / "small.gguf")
    for text in TEXTS[:2]:
        assert main(["generate", file, "--prompt", text, "--greedy", "--max-new-tokens", "12", "--json"]) == 0
        found, ids = json.loads(capsys.readouterr().out)["rows"][0], made.encode(text).ids
        prompt, ends = torch.tensor([ids]), [0, 1, 2]
        told = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": ends}
        want = model.generate(prompt, attention_mask=torch.ones_like(prompt), **told)[0, len(ids) :].tolist()
        assert found["tokens"] == want


def test_the_tokenizer_inside_is_the_publishers(tmp_path: Path) -> None:
    made = cut_in_digits()
    small_llama(tmp_path, made)
    mine = Tokenizer.load(tmp_path / "small.gguf")
    for text in TEXTS:
        if "<|" not in text:
            assert mine.encode(text).tolist() == made.encode(text).ids, text
        assert mine.decode(mine.encode(text)) == text
    assert dict(mine.named) == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    spoken = mine.chat([{"role": "user", "content": "12 dogs<|im_end|>"}]).tolist()
    assert spoken[0] == 1
    assert spoken.count(2) == 1, "what a user says ends no turn"
    assert mine.around == ((), ())


def test_what_a_file_says_of_its_ends_is_heeded(tmp_path: Path) -> None:
    """Tokens before and after a text; control tokens that an old file lists as text; where a text ends."""
    from plainformer.generation import published

    small_llama(tmp_path, cut_in_digits(), bos=True, eos=True, untyped=True)
    mine = Tokenizer.load(tmp_path / "small.gguf")
    assert mine.around == ((1,), (2,))
    assert mine.control == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    assert published(tmp_path / "small.gguf").stop_ids == (2,)
    small_llama(tmp_path, cut_in_digits(), bare=True)
    assert len(Tokenizer.load(tmp_path / "small.gguf").encode("the dogs")) == 8
    small_llama(tmp_path, cut_in_digits(), pre="tekken")
    with pytest.raises(PlainformerError, match=r"tokenizer\.ggml\.pre = 'tekken'"):
        Tokenizer.load(tmp_path / "small.gguf")


# --- sentence vectors -------------------------------------------------------------------------------------------------

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "!", "a", "##b", "cafe", "1", "##2")


def small_bert(folder: Path, pooling: int) -> Any:
    """As sentence encoders are published in GGUF: a BERT without its pooler, marks before words instead of inside."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"vocab_size": len(PIECES), "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = BertModel(BertConfig(**sizes, intermediate_size=96, max_position_embeddings=32)).eval()
    writer = gguf.GGUFWriter(folder / "bert.gguf", "bert")
    writer.add_context_length(32)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType(pooling))
    writer.add_tokenizer_model("bert")
    marked = [text if i < 5 else text[2:] if text[:2] == "##" else f"\u2581{text}" for i, text in enumerate(PIECES)]
    writer.add_token_list(marked)
    writer.add_token_types([3] * 5 + [1] * (len(PIECES) - 5))
    for name, number in {"pad": 0, "unk": 1, "bos": 2, "sep": 3, "mask": 4}.items():
        getattr(writer, f"add_{name}_token_id")(number)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 2)
    for name, tensor in model.state_dict().items():
        if "pooler" not in name and "position_ids" not in name:
            add(writer, names.get_name(name, try_suffixes=(".weight", ".bias")), tensor, "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@pytest.mark.parametrize(("pooling", "called"), [(1, "mean"), (2, "first")])
def test_sentence_vectors_of_a_bert_in_one_file(
    pooling: int, called: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pooled as its key says; cut by the tokenizer inside as BERT's own cuts."""
    from transformers import BertTokenizer

    model = small_bert(tmp_path, pooling)
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    theirs = BertTokenizer.from_pretrained(tmp_path)
    texts = ["The cats sat!", "ab 12 caf\u00e9 dog", "a"]
    assert main(["embed", str(tmp_path / "bert.gguf"), *texts, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pool"] == called
    for text, row in zip(texts, told["rows"], strict=True):
        ids = theirs(text)["input_ids"]
        assert row["tokens"] == ids
        with torch.no_grad():
            stream = model(torch.tensor([ids])).last_hidden_state[0]
        want = stream.mean(0) if called == "mean" else stream[0]
        assert np.allclose(row["vector"], want.numpy(), atol=2e-6)
    assert main(["size", str(tmp_path / "bert.gguf"), "--json"]) == 0
    n = sum(t.numel() for name, t in model.state_dict().items() if "pooler" not in name and "position_ids" not in name)
    assert json.loads(capsys.readouterr().out)["parameters"]["total"] == n
