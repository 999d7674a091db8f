"""Places where the code once did not do what it says: each stays mended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from plainformer import reference
from plainformer import spec as s
from plainformer.conventions import with_lora
from plainformer.families import decoders, encoder_decoders, mixtures
from plainformer.faults import PlainformerError
from plainformer.initial import initial
from plainformer.layers import build
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.states import State, Where
from plainformer.tree import rewrite, walk

SIZES = {"vocab_size": 30, "max_seq_len": 12, "d_model": 12, "n_layers": 2, "n_heads": 2}
BART = encoder_decoders.bart(
    **{name: SIZES[name] for name in ("vocab_size", "max_seq_len", "d_model")},
    n_encoder_layers=1,
    n_decoder_layers=1,
    n_encoder_heads=2,
    n_decoder_heads=2,
    d_encoder_ff=8,
    d_decoder_ff=8,
)
TOKENS_BT = torch.tensor([[1, 2, 3], [4, 5, 6]])


def model_of(spec: Spec) -> Transformer:
    model, generator = Transformer(spec).double().eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return model


@torch.no_grad()
def test_a_state_takes_no_second_memory() -> None:
    model, state = model_of(BART), State(2, 12)
    model(TOKENS_BT, state, memory=model.encode(TOKENS_BT))
    with pytest.raises(PlainformerError, match="begin anew"):
        model(TOKENS_BT, state, memory=model.encode(TOKENS_BT + 1))


@torch.no_grad()
def test_a_causal_encoder_is_causal() -> None:
    assert BART.encoder is not None
    spec = replace(BART, encoder=replace(BART.encoder, causal=True))
    model = model_of(spec)
    said_BSD, other_BSD = (model.encode(tokens).said_BSD for tokens in (TOKENS_BT, TOKENS_BT + torch.tensor([0, 0, 1])))
    assert torch.equal(said_BSD[:, :2], other_BSD[:, :2])
    want_TV = reference.logits(spec, model.arrays(), [1, 2], source_S=[4, 5, 6])
    got_TV = model(torch.tensor([[1, 2]]), memory=model.encode(torch.tensor([[4, 5, 6]])))[0]
    torch.testing.assert_close(got_TV, torch.tensor(want_TV), rtol=0, atol=1e-12)


def test_a_cross_attention_reads_what_the_encoder_says() -> None:
    def wide(part: object) -> object:
        if isinstance(part, s.Attention) and part.cross:
            return replace(part, k=s.Linear(n_in=99, n_out=12), v=s.Linear(n_in=99, n_out=12))
        return part

    with pytest.raises(PlainformerError, match="what the encoder says"):
        rewrite(BART, wide)


def test_no_two_parts_of_a_layer_stand_under_one_name() -> None:
    def named(part: object) -> object:
        return (
            replace(part, name="attention_norm") if isinstance(part, s.Branch) and part.name == "feed_forward" else part
        )

    with pytest.raises(PlainformerError, match="attention_norm"):
        rewrite(decoders.gpt2(**SIZES), named)


@pytest.mark.parametrize("recipe", ["gpt2", "zero_out"])
def test_only_what_goes_onto_the_stream_begins_smaller(recipe: str) -> None:
    """A projection in two steps has a `down` too: it is none of them."""
    router = s.SigmoidRouter(
        scores=s.Linear(n_in=12, n_out=4), n_chosen=2, n_groups=2, n_chosen_groups=1, factor=1.0, normalised=True
    )
    spec = mixtures.deepseek(
        **SIZES,
        d_ff=8,
        n_dense=1,
        d_nope=4,
        d_rope=4,
        d_value=4,
        q_rank=6,
        kv_rank=6,
        router=router,
        d_expert=8,
        n_shared=1,
    )
    arrays = initial(spec, recipe)
    place = "decoder.layers.1"
    inner, onto = f"{place}.attention.q.down.weight", f"{place}.feed_forward.shared.down.weight"
    assert arrays[inner].std() > 1.5 * arrays[onto].std()


def test_adapters_of_shared_experts_are_adapters() -> None:
    spec = rewrite(
        decoders.gpt2(**SIZES),
        lambda part: (
            s.Experts(
                router=s.ChosenSoftmaxRouter(scores=s.Linear(n_in=12, n_out=3), n_chosen=1),
                expert=part,
                n_experts=3,
                shared=part,
            )
            if isinstance(part, s.FeedForward)
            else part
        ),
    )
    adapted = with_lora(spec, 2, alpha=1.0, targets=("feed_forward.up",))
    added = {w.name for w in Ledger.of(adapted).rows} - {w.name for w in Ledger.of(spec).rows}
    assert added
    assert {w.kind for w in Ledger.of(adapted).rows if w.name in added} == {"lora"}


@torch.no_grad()
def test_a_stack_alone_keeps_its_attentions_apart() -> None:
    model = model_of(decoders.gpt2(**SIZES))
    alone = build(model.spec.decoder).double()
    alone.load_state_dict(model.decoder.state_dict())
    x_BTD, state = torch.randn(1, 5, 12, dtype=torch.float64), State(1, 8)
    pieces = []
    for at in range(5):
        pieces.append(alone(x_BTD[:, at : at + 1], Where(torch.tensor([[at]]), True, (at,), state=state)))
        state.lengths = [at + 1]
    whole_BTD = alone(x_BTD, Where(torch.arange(5)[None], True))
    torch.testing.assert_close(torch.cat(pieces, 1), whole_BTD, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_new", [[9, 2], [2], [-1, 3], [1, 2, 3]])
def test_row_lengths_that_cannot_be_are_refused_before_anything_is_kept(n_new: list[int]) -> None:
    model, state = model_of(decoders.gpt2(**SIZES)), State(2, 12)
    with pytest.raises(PlainformerError, match="n_new"):
        model(TOKENS_BT, state, n_new=n_new)
    assert state.lengths == [0, 0]
    assert not state.kept


def test_a_part_without_a_width_says_so() -> None:
    class Unmeasured:
        n_in = n_out = 12

    with pytest.raises((TypeError, PlainformerError), match="Unmeasured"):
        rewrite(
            decoders.gpt2(**SIZES),
            lambda part: replace(part, q=Unmeasured()) if isinstance(part, s.Attention) else part,
        )


def test_a_dtype_asked_for_second_is_given() -> None:
    where, rotary = Where(torch.arange(4)[None], True), s.Rotary(theta=100.0, n_dims=4)
    assert [where.turns(rotary, dtype)[0].dtype for dtype in (torch.float32, torch.float64)] == [
        torch.float32,
        torch.float64,
    ]
    assert np.isclose(where.turns(rotary, torch.float64)[0][0, 0, 1, 0].item(), np.cos(1.0), atol=1e-15)


def test_generate_says_what_an_encoder_decoder_lacks() -> None:
    from plainformer.generation import generate

    with pytest.raises(PlainformerError, match="text for its encoder"):
        generate(Transformer(BART), [[1, 2]], max_new_tokens=2)


def test_a_query_that_sees_nothing_gets_nothing_from_the_fused_kernel_too() -> None:
    from plainformer.kernels import attention, fused_attention

    q_BHTK = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    see_11TT = torch.ones(3, 3, dtype=torch.bool).tril(-1)[None, None]
    plain, _ = attention(q_BHTK, q_BHTK, q_BHTK, see_11TT, 0.5)
    fused = fused_attention(q_BHTK, q_BHTK, q_BHTK, see_11TT, False, 0.5)
    assert torch.equal(fused[0, :, 0], torch.zeros(2, 4, dtype=torch.float64))
    torch.testing.assert_close(plain, fused, rtol=0, atol=1e-12)


def test_a_router_s_groups_are_said() -> None:
    from plainformer.huggingface import read

    sizes = {
        "vocab_size": 30,
        "hidden_size": 12,
        "intermediate_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    latent = {"q_lora_rank": None, "kv_lora_rank": 6, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4}
    routed = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_shared_experts": 1}
    config = {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], **sizes, **latent, **routed}
    assert read(config | {"topk_method": "greedy", "routed_scaling_factor": 1.0}).unsaid == ()
    grouped = read(config | {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1})
    assert grouped.unsaid == ()
    routers = [part for _, part in walk(grouped.spec) if isinstance(part, s.SoftmaxRouter)]
    assert {(router.n_groups, router.n_chosen_groups) for router in routers} == {(2, 1)}
