"""L3 for every family: read from a folder as transformers saves it, both our sides say what it says, and the tensors go
back to the bit. The strangers run in float64 throughout.

B batch, T new positions, S source positions, D d_model, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

import laws
import specs
import strangers
from mutants import Break, breaks, rule
from plainformer import experts, formulas, kernels, reference
from plainformer import model as m
from plainformer import spec as s
from plainformer.checkpoint.hub import load_hub
from plainformer.conventions import untie
from plainformer.families.parts import Layer, attention, dot, feed_forward, layer_norm, linear, sublayer
from plainformer.faults import PlainformerError
from plainformer.huggingface import names, read
from plainformer.spec import Head, Spec, Stack, Table, Tokens
from plainformer.states import State
from plainformer.tree import rewrite, walk
from strangers import CLOSE, SIDES, STRANGERS, VOCAB, Case, asked, case_of, check_whole, float64, gap, made

CaseOf = Callable[[str], Case]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> CaseOf:
    """What a stranger said, by its name; each is asked once."""
    seen: dict[str, Case] = {}

    def ask(which: str) -> Case:
        if which not in seen:
            seen[which] = case_of(STRANGERS[which], tmp_path_factory.mktemp("stranger"))
        return seen[which]

    return ask


# --- forward, and there and back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", STRANGERS)
def test_both_sides_say_what_the_family_says(which: str, case: CaseOf) -> None:
    this = case(which)
    check_whole(this)
    assert np.abs(this.want).max() > 0.3, "the stranger says next to nothing"
    for side in SIDES:
        assert gap(this, side) <= CLOSE, side


@pytest.mark.parametrize("which", STRANGERS)
def test_a_folders_tensors_come_back_to_the_bit(which: str, case: CaseOf) -> None:
    this = case(which)
    ours = names.to_ours(this.model_type, this.spec, this.theirs, np)
    back = names.to_theirs(this.model_type, this.spec, ours, np)
    fixed = {row.theirs for row in names.table_of(this.model_type) if row.made}
    back = {name: array for name, array in back.items() if name not in fixed or name in this.theirs}
    written = {next(name for name in names.spellings(theirs) if name in this.theirs): a for theirs, a in back.items()}
    assert this.theirs.keys() - written.keys() == set(this.stranger.buffers)
    for name, array in written.items():
        assert array.dtype == this.theirs[name].dtype, name
        assert np.array_equal(array, this.theirs[name]), name


def test_berts_own_files_are_read_with_gamma_and_beta(case: CaseOf) -> None:
    this = case("bert")
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): a
        for name, a in this.theirs.items()
    }
    assert old.keys() != this.theirs.keys()
    ours = names.to_ours("bert", this.spec, old, np)
    assert all(np.array_equal(ours[name], array) for name, array in this.arrays.items())


def test_a_checkpoint_that_is_not_the_specs_is_refused_by_its_tensors_names(case: CaseOf) -> None:
    """One absent, one of another shape, and a bias that the config denies: each would be another model."""
    this = case("llama linear")
    layer = "model.layers.1.self_attn"
    bias = {f"{layer}.q_proj.bias": np.zeros(32)}
    short = {name: a for name, a in this.theirs.items() if name != f"{layer}.k_proj.weight"}
    wrong = this.theirs | {f"{layer}.v_proj.weight": np.zeros((15, 24))}
    for theirs, said in (
        (this.theirs | bias, f"{layer}.q_proj.bias = (32,): is in the checkpoint, but not in its config"),
        (short, f"{layer}.k_proj.weight = None: is not in the checkpoint"),
        (wrong, "attention.v.weight = (15, 24): must be (16, 24)"),
    ):
        with pytest.raises(PlainformerError) as caught:
            names.to_ours(this.model_type, this.spec, theirs, np)
        assert said in str(caught.value)
        assert len(caught.value.faults) == 1
    names.to_ours(this.model_type, this.spec, this.theirs | {"model.layers.0.self_attn.rotary_emb.inv_freq": bias}, np)


def test_weights_packed_in_an_unknown_way_are_refused_not_misread(case: CaseOf, tmp_path: Path) -> None:
    """Their tensors have other numbers than the model: scales stand beside them."""
    this = case("llama linear")
    save_file(this.theirs, tmp_path / "model.safetensors")
    config = {"model_type": "llama", **this.stranger.settings}
    for quantization in (None, {"quant_method": "gptq", "bits": 4}):
        (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
        if quantization is None:
            assert load_hub(tmp_path).spec == this.spec
            continue
        with pytest.raises(PlainformerError, match=r"quant_method = 'gptq': no rule unpacks these weights yet"):
            load_hub(tmp_path)


def test_a_head_of_its_own_is_told_by_its_numbers(case: CaseOf) -> None:
    """As T5 1.1 is saved: tied by its config, with another matrix beside the table."""
    this, table = case("t5 1.1, its head not scaled"), "shared.weight"
    assert this.spec.head is not None
    assert (this.spec.head.tied, this.spec.head.scale) == (True, 1.0)
    for head, own in ((this.theirs[table] + 1, True), (this.theirs[table].copy(), False), (None, False)):
        theirs = this.theirs | ({} if head is None else {"lm_head.weight": head})
        assert names.own_head("t5", this.spec, theirs) == own
    assert not names.own_head("t5", untie(this.spec), this.theirs | {"lm_head.weight": this.theirs[table] + 1})


def test_a_base_class_has_a_pooler_too(case: CaseOf) -> None:
    """BertModel's second output, from the row of its first token; its tanh is a softcap at 1."""
    this = case("bert base")
    with float64(), torch.no_grad():
        tokens, types = (torch.from_numpy(a)[None] for a in (this.tokens_T, this.types_T))
        want = made(this.stranger)(input_ids=tokens, token_type_ids=types).pooler_output[0]
    said = reference.logits(this.spec, this.arrays, this.tokens_T, types_T=this.types_T)[0]
    laws.close(said, want, "the pooler", CLOSE)


# --- decoding ---------------------------------------------------------------------------------------------------------

DECODED = ("gemma2", "gpt_oss", "deepseek_v3", "deepseek_v3 without rank, yarn", "mixtral", "qwen2_moe", "bloom")
DECODED += (
    "opt post-norm, narrow",
    "llama yarn",
    "gemma",
    "gemma3",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen3_moe",
    "t5",
    "t5 1.1, tied",
    "bart",
    "marian",
    "pegasus",
    "mbart",
    "m2m_100 with another padding",
    "blenderbot",
)


@torch.no_grad()
def greedy(model: m.Transformer, prompt_BT: Tensor, n_new: int, memory: Any = None) -> Tensor:
    """Each row's best tokens, every token read once."""
    state, rows_BT = State(len(prompt_BT), capacity=model.spec.max_seq_len), prompt_BT
    for _ in range(n_new):
        logits_BTV = model(rows_BT[:, state.lengths[0] :], state, memory=None if state.memory else memory)
        rows_BT = torch.cat((rows_BT, logits_BTV[:, -1:].argmax(-1)), 1)
    return rows_BT


@pytest.mark.parametrize("which", DECODED)
def test_greedy_decoding_with_a_cache_gives_the_familys_tokens(which: str, case: CaseOf) -> None:
    this, n_new = case(which), 14
    rng = np.random.default_rng(5)
    source = torch.from_numpy(rng.integers(3, VOCAB, (8, 9)))
    prompt = torch.full((8, 1), 5) if this.stranger.pair else torch.from_numpy(rng.integers(3, VOCAB, (2, 6)))
    with float64(), torch.no_grad():
        stranger = made(this.stranger)
        told = {"do_sample": False, "max_new_tokens": n_new, "pad_token_id": 0}
        for name in ("eos_token_id", "forced_eos_token_id", "forced_bos_token_id"):
            setattr(stranger.generation_config, name, None)
        if this.stranger.pair:
            want = stranger.generate(input_ids=source, decoder_start_token_id=5, use_cache=False, **told)
        else:
            want = stranger.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), **told)
    assert want.shape == (len(prompt), prompt.shape[1] + n_new)
    assert len(want.unique()) > 4, "the stranger repeats itself"
    model = laws.double(this.spec, this.arrays)
    memory = model.encode(source) if this.stranger.pair else None
    assert torch.equal(greedy(model, prompt, n_new, memory), want)


# --- padding ----------------------------------------------------------------------------------------------------------

PADDED = ("bert", "roberta", "distilbert", "albert", "modernbert", "t5 encoder", "t5", "bart", "marian", "m2m_100")


def in_a_batch(this: Case, heeded: bool = True) -> tuple[Tensor, Tensor, list[int]]:
    """(ours, the stranger's, how many of each row are real): rows of several lengths filled up at their ends."""
    lengths, rng = [15, 8, 3], np.random.default_rng(6)
    rows = torch.from_numpy(rng.integers(3, VOCAB, (3, 15)))
    tokens = torch.from_numpy(rng.integers(3, VOCAB, (3, 7))) if this.stranger.pair else rows
    types = torch.from_numpy(rng.integers(0, 2, rows.shape)) if this.stranger.types else None
    mask = (torch.arange(15) < torch.tensor(lengths)[:, None]).long()
    with float64():
        want = asked(this.stranger, made(this.stranger), tokens, rows, types, attention_mask=mask)
    model, told = laws.double(this.spec, this.arrays), lengths if heeded else None
    with torch.no_grad():
        if this.stranger.pair:
            got = model(tokens, memory=model.encode(rows, told))
        else:
            got = model.hidden(tokens, n_new=told, types_BT=types)
            got = got if strangers.headless(this) else model.logits(got)
    return got, want, [7] * 3 if this.stranger.pair else lengths


@pytest.mark.parametrize("which", PADDED)
def test_padding_is_seen_by_no_one(which: str, case: CaseOf) -> None:
    got, want, lengths = in_a_batch(case(which))
    for b, n in enumerate(lengths):
        laws.close(got[b, :n], want[b, :n], f"row {b}", CLOSE)


@pytest.mark.parametrize("which", PADDED)
def test_padding_that_is_seen_is_noticed(which: str, case: CaseOf) -> None:
    got, want, lengths = in_a_batch(case(which), heeded=False)
    laws.close(got[0, : lengths[0]], want[0, : lengths[0]], "the full row", CLOSE)
    with pytest.raises(AssertionError, match="off by"):
        laws.close(got[2, : lengths[2]], want[2, : lengths[2]], "the shortest row", 1e-3)


# --- torch.nn ---------------------------------------------------------------------------------------------------------


def pair_of_torch(d_model: int, n_heads: int, d_ff: int, norm_first: bool, activation: s.Activation) -> Spec:
    """nn.Transformer's two stacks between a token table and the same table as the head."""
    norm = layer_norm(d_model, 1e-5)

    def stack(causal: bool, n_layers: int) -> Stack:
        def part(cross: bool) -> s.Attention:
            scores, d_head = dot(d_model // n_heads), d_model // n_heads
            more: dict[str, Any] = {"qkv_bias": True, "out_bias": True, "cross": cross}
            return attention(d_model=d_model, n_heads=n_heads, n_kv_heads=n_heads, d_head=d_head, scores=scores, **more)

        parts: dict[str, s.Part] = {"attention": part(cross=False)}
        parts |= {"cross_attention": part(cross=True)} if causal else {}
        parts["feed_forward"] = feed_forward(d_model, d_ff, activation, bias=True)
        place = "norm_in" if norm_first else "norm_sum"
        layer: Layer = tuple(sublayer(name, part, **{place: norm}) for name, part in parts.items())
        return Stack(layers=(layer,) * n_layers, causal=causal, norm_last=norm)

    return Spec(
        embedding=Tokens(table=Table(n_rows=VOCAB, width=d_model)),
        encoder=stack(causal=False, n_layers=2),
        decoder=stack(causal=True, n_layers=3),
        head=Head(linear=linear(d_model, VOCAB), tied=True),
        max_seq_len=16,
    )


def from_torch(stack: nn.Module, place: str, norm_first: bool) -> dict[str, np.ndarray]:
    """The weights of nn.TransformerEncoder or nn.TransformerDecoder under our names."""
    after = "_norm" if norm_first else "_norm_sum"
    parts = ["attention", "cross_attention", "feed_forward"] if place == "decoder" else ["attention", "feed_forward"]
    ours = {"linear1": "feed_forward.up", "linear2": "feed_forward.down"}
    ours |= {"self_attn.out_proj": "attention.out", "multihead_attn.out_proj": "cross_attention.out"}
    ours |= {f"norm{i}": part + after for i, part in enumerate(parts, 1)}
    arrays = {}
    for name, tensor in stack.state_dict().items():
        path, _, kind = name.rpartition(".")
        if path == "norm":
            arrays[f"{place}.norm_last.{kind}"] = tensor.numpy()
            continue
        _, i, inner = path.split(".", 2)
        layer = f"{place}.layers.{i}"
        if kind.startswith("in_proj_"):
            which = "attention" if inner == "self_attn" else "cross_attention"
            for letter, array in zip("qkv", np.split(tensor.numpy(), 3), strict=True):
                arrays[f"{layer}.{which}.{letter}.{kind.removeprefix('in_proj_')}"] = array
        else:
            arrays[f"{layer}.{ours[inner]}.{kind}"] = tensor.numpy()
    return arrays


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_and_a_decoder_of_torch_nn_say_the_same(norm_first: bool, activation: s.Activation) -> None:
    """Bidirectional encoder, causal decoder, cross-attention; some of the source's rows are padded."""
    d_model, n_heads, d_ff, lengths = 12, 3, 20, [11, 6, 2]
    told: dict[str, Any] = {"activation": activation, "norm_first": norm_first, "batch_first": True, "dropout": 0.0}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(d_model, n_heads, d_ff, **told), 2, nn.LayerNorm(d_model), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(d_model, n_heads, d_ff, **told), 3, nn.LayerNorm(d_model)
    )
    encoder, decoder = (strangers.shaken(stack.double(), seed) for seed, stack in enumerate((encoder, decoder)))
    spec = pair_of_torch(d_model, n_heads, d_ff, norm_first, activation)
    rng = np.random.default_rng(0)
    arrays = {"embedding.weight": rng.normal(size=(VOCAB, d_model))}
    arrays |= from_torch(encoder, "encoder", norm_first) | from_torch(decoder, "decoder", norm_first)
    reference.check_arrays(spec, arrays)
    source_BS, tokens_BT = (torch.from_numpy(rng.integers(0, VOCAB, (3, n))) for n in (11, 8))
    table, padding = torch.from_numpy(arrays["embedding.weight"]), torch.arange(11) >= torch.tensor(lengths)[:, None]
    model = laws.double(spec, arrays)
    with torch.no_grad():
        memory = encoder(table[source_BS], src_key_padding_mask=padding)
        future = nn.Transformer.generate_square_subsequent_mask(8, dtype=torch.float64)
        x = decoder(table[tokens_BT], memory, tgt_mask=future, tgt_is_causal=True, memory_key_padding_mask=padding)
        want, said = x @ table.T, model.encode(source_BS, lengths)
        laws.close(model(tokens_BT, memory=said), want, "the model", CLOSE)
    for b, n in enumerate(lengths):
        laws.close(said.said_BSD[b, :n], memory[b, :n], f"the memory of row {b}", CLOSE)
        alone = reference.logits(spec, arrays, tokens_BT[b].numpy(), source_S=source_BS[b, :n].numpy())
        laws.close(alone, want[b], f"the reference, row {b}", CLOSE)


# --- seen red ---------------------------------------------------------------------------------------------------------


def on_spec(change: Callable[[Any], Any]) -> Callable[[Case], Case]:
    return lambda this: replace(this, spec=rewrite(this.spec, change))


def fields(kind: type, **new: object) -> Callable[[Case], Case]:
    return lambda this: replace(this, spec=specs.change(this.spec, kind, **new))


def wider(part: Any) -> Any:
    return replace(part, window=part.window + 1) if isinstance(part, s.Attention) and part.window else part


def stretched(part: Any) -> Any:
    scaling = s.Scaling(kind="linear", settings=(("factor", 4.0),))
    return replace(part, scaling=scaling) if isinstance(part, s.Rotary) and part.scaling is None else part


def turned_alike(part: Any) -> Any:
    return replace(part, theta=100.0, scaling=None) if isinstance(part, s.Rotary) and part.theta == 20 else part


def in_turn(part: Any) -> Any:
    return replace(part, passes=(0, 1, 0, 1)) if isinstance(part, Stack) else part


def unbiased(this: Case) -> Case:
    """Without the constant of the scores."""
    return replace(this, arrays=this.arrays | {"head.bias": np.zeros(VOCAB)})


def swapped(this: Case) -> Case:
    """Mixtral's w1 and w3: the gate for the way up."""
    turn = {".experts.gate.": ".experts.up.", ".experts.up.": ".experts.gate."}
    arrays = {}
    for name, array in this.arrays.items():
        old = next((word for word in turn if word in name), "")
        arrays[name.replace(old, turn[old]) if old else name] = array
    return replace(this, arrays=arrays)


def without_sinks(original: Any) -> Any:
    return lambda q, k, v, see, scale, bias=None, cap=None, sinks=None: original(q, k, v, see, scale, bias, cap)


def capped_late(original: Any) -> Any:
    """The cap after the mask: what may not be seen is capped too, and so seen a little."""

    def attention(q: Any, k: Any, v: Any, see: Any, scale: float, bias: Any, cap: float, sinks: Any) -> Any:
        if isinstance(q, Tensor):
            k, v = (y.repeat_interleave(q.shape[-3] // y.shape[-3], -3) for y in (k, v))
            scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~see, -torch.inf)
            weights = (cap * (scores / cap).tanh()).softmax(-1)
        else:
            scores = np.where(see, q @ k.swapaxes(-1, -2) * scale, -np.inf)
            weights = formulas.softmax(cap * np.tanh(scores / cap))
        return weights @ v, weights

    return attention


def corrected_gates(original: Any) -> Any:
    """Gates of the corrected scores, in the reference."""

    def run(part: s.SigmoidRouter, w: reference.Weights, x: Any, where: reference.Where) -> Any:
        chosen = original(part, w, x, where) > 0
        p = (formulas.sigmoid(x @ w["scores.weight"].T) + w["correction"]) * chosen
        return p / p.sum(-1, keepdims=True) * part.factor

    return run


def corrected_gates_of_the_model(original: Any) -> Any:
    def forward(self: experts.SigmoidRouter, x: Tensor) -> Any:
        scores, chosen, _ = original(self, x)
        p = (scores.sigmoid() + self.correction) * chosen
        return scores, chosen, p / p.sum(-1, keepdim=True) * self.part.factor

    return forward


def plain_gate(patch: pytest.MonkeyPatch) -> None:
    """No sigmoid but the one inside silu."""
    patch.setitem(formulas.ACTIVATIONS, "silu", lambda x: x * (1 + np.tanh(x / 2)) / 2)
    patch.setattr(formulas, "sigmoid", lambda x: x)


def forgetful(original: Any) -> Any:
    return lambda n_heads: original(n_heads) * 0.5


NEXT_BUCKET: dict[str, Break] = {
    "reference": breaks(
        formulas, "relative_buckets", lambda original: lambda ago, n, *b: (original(ago, n, *b) + 1) % n
    ),
    "model": breaks(kernels, "relative_buckets", lambda old: lambda ago, of, c: (old(ago, of, c) + 1) % of.n_buckets),
}
NO_SINKS: dict[str, Break] = {
    "reference": breaks(formulas, "attention", without_sinks),
    "model": breaks(m, "attention", without_sinks),
}
CAPPED_LATE: dict[str, Break] = {
    "reference": breaks(formulas, "attention", capped_late),
    "model": breaks(m, "attention", capped_late),
}
CORRECTED: dict[str, Break] = {
    "reference": rule(s.SigmoidRouter, corrected_gates),
    "model": breaks(experts.SigmoidRouter, "forward", corrected_gates_of_the_model),
}
PLAIN_GATE: dict[str, Break] = {
    "reference": plain_gate,
    "model": breaks(torch.Tensor, "sigmoid", lambda _: lambda self: self),
}
SLOPES: dict[str, Break] = {
    "reference": breaks(formulas, "alibi_slopes", forgetful),
    "model": breaks(kernels, "alibi_slopes", forgetful),
}
UNSHARPENED: dict[str, Break] = {
    "reference": breaks(formulas, "stretch", lambda _: lambda rotary: 1.0),
    "model": breaks(kernels, "stretch", lambda _: lambda rotary: 1.0),
}

# (what goes wrong, the family that notices, a changed case or a break of each side)
SABOTAGED: tuple[tuple[str, str, Callable[[Case], Case] | dict[str, Break]], ...] = (
    ("buckets off by one", "t5", NEXT_BUCKET),
    ("sinks ignored", "gpt_oss", NO_SINKS),
    ("scores capped after the mask", "gemma2", CAPPED_LATE),
    ("the correction in the gates", "deepseek_v3", CORRECTED),
    ("the shared expert's gate without sigmoid", "qwen2_moe", PLAIN_GATE),
    ("slopes half as steep", "bloom", SLOPES),
    ("YaRN without its sharpening", "llama yarn", UNSHARPENED),
    ("positions from row 0", "bart", fields(s.Table, offset=0)),
    ("T5's tied head not scaled", "t5", fields(s.Head, scale=1.0)),
    ("types ignored", "bert", lambda this: replace(this, types_T=None)),
    ("dynamic scaling ignored", "llama dynamic", fields(s.Rotary, scaling=None)),
    ("pairs as halves", "deepseek_v3", fields(s.Rotary, interleaved=False)),
    ("halves as pairs", "deepseek_v3 in halves", fields(s.Rotary, interleaved=True)),
    ("YaRN's factor on the scores left out", "deepseek_v3 without rank, yarn", fields(s.Scores, scale=10**-0.5)),
    ("mT5's head scaled", "mt5", fields(s.Head, scale=24**-0.5)),
    ("windowed layers stretched too", "olmo3", on_spec(stretched)),
    ("a window one wider", "modernbert", on_spec(wider)),
    ("groups in turn", "albert in two groups", on_spec(in_turn)),
    ("near layers turned as far ones", "olmo3 with two bases", on_spec(turned_alike)),
    ("gates that sum to 1", "qwen3_moe", fields(s.SoftmaxRouter, normalised=True)),
    ("gates that do not sum to 1", "qwen3_moe normalised", fields(s.SoftmaxRouter, normalised=False)),
    ("a gain without its 1", "gemma", fields(s.Norm, plus_one=False)),
    ("the embedding not scaled", "bart scaled", fields(s.Tokens, scale=1.0)),
    ("nothing added to the scores", "marian", unbiased),
    ("sines and cosines side by side", "m2m_100", fields(s.Sinusoid, layout="pairs")),
    ("frequencies of the paper", "m2m_100", fields(s.Sinusoid, layout="halves")),
    ("fixed positions from row 0", "m2m_100", fields(s.Sinusoid, offset=0)),
    ("one rotation for both kinds of layers", "gemma3", fields(s.Rotary, theta=100.0, scaling=None)),
    ("the gate for the way up", "mixtral", swapped),
)


@pytest.mark.parametrize(("what", "which", "broken"), SABOTAGED, ids=[what for what, *_ in SABOTAGED])
def test_a_family_notices(
    what: str,
    which: str,
    broken: Callable[[Case], Case] | dict[str, Break],
    case: CaseOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    this = case(which)
    for side in SIDES:
        assert gap(this, side) <= CLOSE
        if callable(broken):
            assert gap(broken(this), side) > 1e-5, f"{what}: the {side} agrees all the same"
            continue
        with monkeypatch.context() as patch:
            patch.callbacks = []  # type: ignore[attr-defined]
            broken[side](patch)
            try:
                off = gap(this, side)
            finally:
                for undo in patch.callbacks:  # type: ignore[attr-defined]
                    undo()
        assert off > 1e-5, f"{what}: the {side} agrees all the same"
        assert gap(this, side) <= CLOSE, "the sabotage outlived its test"


def test_rotary_settings_by_kind_of_layer_are_heeded_or_refused() -> None:
    """As transformers 5 writes them: where a reader has no place for them, they are not passed over."""
    nested = {"full_attention": {"rope_type": "default", "rope_theta": 100.0}}
    nested |= {"sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
    with pytest.raises(PlainformerError, match="settings for each kind of layer are not known of this family"):
        read({"model_type": "llama", "rope_parameters": nested} | strangers.SIZES)
    thetas = [
        part.theta
        for _, part in walk(read({"model_type": "modernbert", "rope_parameters": nested} | strangers.SIZES).spec)
        if isinstance(part, s.Rotary)
    ]
    assert thetas == [100.0, 50.0]
