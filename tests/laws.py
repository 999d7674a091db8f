"""The laws as functions of a spec: each raises AssertionError where the product breaks it.

Tests call them on many specs; sabotaged twins break the product first and expect the same functions to raise.
B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from plainformer import formulas, initial, kernels, ledger, reference
from plainformer import model as m
from plainformer import spec as s
from plainformer.mixers import LatentAttention
from plainformer.model import Transformer
from plainformer.reference import Weights
from plainformer.states import Memory, State, Where
from plainformer.tree import from_json, to_json, walk
from specs import arrays_of, has_experts, tokens_of

CLOSE = 1e-12
MIXERS = (s.Attention, LatentAttention)


def double(spec: s.Spec, arrays: dict[str, np.ndarray]) -> Transformer:
    model = Transformer(spec, initial=None).double().eval()
    model.take(arrays.items())
    return model


def source_of(spec: s.Spec, n_rows: int) -> np.ndarray | None:
    """What the encoder of an encoder-decoder is given to read; None for all others."""
    return tokens_of(spec, n_rows, 9, seed=5) if spec.encoder and spec.decoder else None


def heard(model: Transformer, n_rows: int, trace: dict[str, Tensor] | None = None) -> Memory | None:
    source_BS = source_of(model.spec, n_rows)
    return None if source_BS is None else model.encode(torch.tensor(source_BS), trace=trace)


def only(memory: Memory | None, *rows: int) -> Memory | None:
    return memory and memory.select(list(rows))


def close(got: object, want: object, what: str, tolerance: float = CLOSE) -> None:
    """Equal shapes, and no number further off than tolerance times the largest (at least 1)."""
    got, want = (np.asarray(y.detach() if isinstance(y, Tensor) else y, np.float64) for y in (got, want))
    assert got.shape == want.shape, f"{what}: shape {got.shape} instead of {want.shape}"
    assert np.isfinite(got).all(), f"{what}: not finite"
    gap = np.abs(got - want).max() / max(1.0, np.abs(want).max())
    assert gap <= tolerance, f"{what}: off by {gap:.3g}"


# --- L1 ---------------------------------------------------------------------------------------------------------------


def the_ledger_is_the_model(spec: s.Spec) -> None:
    with torch.device("meta"):  # shapes without storage
        model = Transformer(spec)
    rows = ledger.Ledger.of(spec).rows
    built = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    assert [(w.name, w.shape) for w in rows if not w.same_as and not w.buffer] == built
    kept = [(name, tuple(p.shape)) for name, p in model.named_buffers()]
    assert [(w.name, w.shape) for w in rows if w.buffer] == kept
    assert ledger.Ledger.of(spec).total == sum(p.numel() for p in model.parameters())
    assert all(w.same_as in dict(built) for w in rows if w.same_as)


# --- L2 ---------------------------------------------------------------------------------------------------------------


def the_model_is_the_reference(spec: s.Spec) -> None:
    """Logits, the loss, and what both keep by place: attention weights, gates, the stream."""
    arrays, tokens_BT = arrays_of(spec), tokens_of(spec, 2, 13)
    model = double(spec, arrays)
    seen: dict[str, Tensor] = {}
    with torch.no_grad():
        fused_BTV = model(torch.tensor(tokens_BT), memory=heard(model, 2))  # the fused kernel
        plain_BTV = model(torch.tensor(tokens_BT), memory=heard(model, 2, seen), trace=seen)  # its plain twin
    for b, tokens_T in enumerate(tokens_BT):
        kept: dict[str, np.ndarray] = {}
        source_BS = source_of(spec, 2)
        source_S = None if source_BS is None else source_BS[b]
        want_TV = reference.logits(spec, arrays, tokens_T, trace=kept, source_S=source_S)
        close(fused_BTV[b], want_TV, "logits")
        close(plain_BTV[b], want_TV, "logits of the plain twin")
        assert list(kept) == list(seen)
        for place, array in kept.items():
            got = (
                seen[place].unflatten(0, (len(tokens_BT), -1))[b]
                if ".router." in place or place.endswith("gates")
                else seen[place][b]
            )
            close(got, array, place)
        if spec.head and spec.main.causal:
            nats_BT = kernels.cross_entropy(fused_BTV[b : b + 1, :-1], torch.tensor(tokens_BT[b : b + 1, 1:]))
            close(nats_BT[0], formulas.cross_entropy(want_TV[:-1], tokens_T[1:]), "loss")


def by_token(place: str) -> bool:
    """Routing knows no rows: what a mixture keeps is of the tokens of all of them."""
    return place.endswith(("scores", "chosen", "gates"))


def each_part_alone_is_the_reference(spec: s.Spec) -> None:
    """Every part that a module is built for, by itself, on the same input."""
    n_tokens = 11
    parts = {part for _, part in walk(spec) if type(part) in m.build.registry}
    for part in parts - {spec, *(part for part in parts if isinstance(part, s.RelativeBias) or crosses(part))}:
        arrays, module = arrays_of(part), m.build(part).double()
        mine = dict(module.named_buffers()) | dict(module.named_parameters())
        assert mine.keys() == arrays.keys()
        with torch.no_grad():
            for name, array in arrays.items():
                mine[name].copy_(torch.from_numpy(array))
            close(*both(part, module, arrays, n_tokens), type(part).__name__)


def crosses(part: object) -> bool:
    """A stack in which something is read that it is not given here."""
    return isinstance(part, s.Stack) and any(isinstance(inner, s.Attention) and inner.cross for _, inner in walk(part))


def both(part: object, module: nn.Module, arrays: dict[str, np.ndarray], n_tokens: int) -> tuple[Tensor, np.ndarray]:
    """(the module's answer, the reference's) for one input that fits the part."""
    rng = np.random.default_rng(7)
    said_SD = rng.normal(0, 2, (7, 12))
    memory = Memory(torch.tensor(said_SD)[None], None)
    here = Where(torch.arange(n_tokens)[None], causal=True, memory=memory)
    there = reference.Where(np.arange(n_tokens), memory_SD=said_SD)

    def stream(width: int) -> np.ndarray:
        return rng.normal(0, 2, (n_tokens, width))

    def run(x: np.ndarray, w: Weights | None = None) -> np.ndarray:
        return reference.run(part, w or Weights(arrays), x, there)

    match part:
        case s.Table():
            rows = rng.integers(0, part.n_rows - part.offset, n_tokens)
            return module(torch.tensor(rows)), arrays["weight"][rows + part.offset]
        case s.Tokens():
            rows = rng.integers(0, part.table.n_rows, n_tokens)
            return module(torch.tensor(rows)[None], here)[0], run(rows)
        case s.Sinusoid():
            rows = np.arange(3, 14)
            return module(torch.tensor(rows)[None])[0], run(rows)
        case s.Attention() | LatentAttention():
            x = stream(s_in(part.q))
            return module(torch.tensor(x)[None], here)[0], run(x)
        case s.Stack():
            x = stream(
                next(inner.out.n_out for _, inner in walk(part) if isinstance(inner, s.Attention | LatentAttention))
            )
            return module(torch.tensor(x)[None], here)[0], run(x)
        case s.Experts():
            x = stream(part.router.scores.n_in)
            return module(torch.tensor(x)[None], here)[0], run(x)
        case s.ChosenSoftmaxRouter() | s.SoftmaxRouter() | s.SigmoidRouter():
            x = stream(part.scores.n_in)
            _, chosen_TE, gates_TE = module(torch.tensor(x))
            assert (chosen_TE.sum(-1) == part.n_chosen).all()
            return gates_TE, run(x)
        case s.Head():
            x, table = (
                stream((part.transform or part.linear).n_in),
                rng.normal(size=(part.linear.n_out, part.linear.n_in)),
            )
            named = {f"head.{name}": array for name, array in arrays.items()} | {"embedding.weight": table}
            return module(torch.tensor(x)[None], torch.tensor(table))[0], run(x, Weights(named).at("head"))
        case s.FeedForward():
            x = stream(part.up.n_in)
        case s.NormedLinear() | s.Bottleneck():
            x = stream(s_in(part))
        case s.Linear():
            x = stream(part.n_in)
        case s.Norm():
            x = stream(part.width)
        case _:
            raise AssertionError(f"no test of {type(part).__name__} alone")
    return module(torch.tensor(x)), run(x)


def s_in(part: s.Projection) -> int:
    return (
        part.n_in
        if isinstance(part, s.Linear)
        else s_in(part.linear if isinstance(part, s.NormedLinear) else part.down)
    )


# --- L4 ---------------------------------------------------------------------------------------------------------------


def in_pieces(
    model: Transformer, tokens_BT: Tensor, sizes: Iterable[int], state: State, memory: Memory | None
) -> Tensor:
    """The state is told once what the encoder said."""
    pieces = enumerate(tokens_BT.split(list(sizes), dim=1))
    return torch.cat([model(piece, state, memory=None if i else memory) for i, piece in pieces], dim=1)


def a_cache_changes_no_logit(spec: s.Spec) -> None:
    """One token at a time, and a prompt in chunks, as all at once; the reference's own cache too."""
    arrays, tokens_BT = arrays_of(spec), torch.tensor(tokens_of(spec, 3, 12))
    model = double(spec, arrays)
    source = source_of(spec, 3)
    source_S = None if source is None else source[0]
    with torch.no_grad():
        memory = heard(model, 3)
        want_BTV = model(tokens_BT, memory=memory)
        for sizes in ((1,) * 12, (5, 1, 4, 2), (12,)):
            state = State(3, capacity=14)
            close(in_pieces(model, tokens_BT, sizes, state, memory), want_BTV, f"in pieces of {sizes}")
            assert state.lengths == [12, 12, 12]
    state = reference.State()
    pieces = [
        reference.logits(spec, arrays, piece, state, source_S=source_S)
        for piece in np.split(tokens_BT[0].numpy(), (1, 2, 6, 7))
    ]
    close(np.concatenate(pieces), want_BTV[0], "the reference in pieces")
    state.truncate(5)
    cut_TV = reference.logits(spec, arrays, tokens_BT[0, 5:], state, source_S=source_S)
    close(cut_TV, want_BTV[0, 5:], "the reference, cut back")


def a_cache_changes_no_greedy_token(spec: s.Spec) -> None:
    """In float32 too: the same ids with and without a cache."""
    model = double(spec, arrays_of(spec)).float()
    tokens_BT = torch.tensor(tokens_of(spec, 2, 4))
    state, new_BT = State(2, capacity=spec.max_seq_len), tokens_BT
    with torch.no_grad():
        memory = heard(model, 2)
        for _ in range(8):
            best = model(tokens_BT, memory=memory)[:, -1].argmax(-1, keepdim=True)
            assert torch.equal(best, model(new_BT, state, memory=memory)[:, -1].argmax(-1, keepdim=True))
            new_BT = best % spec.vocab_size  # a spec without a head scores the stream
            tokens_BT = torch.cat((tokens_BT, new_BT), 1)


def a_row_in_a_batch_is_the_row_alone(spec: s.Spec) -> None:
    """Rows of different lengths, filled up with tokens that are no part of them: as each alone."""
    model, tokens_BT = double(spec, arrays_of(spec)), torch.tensor(tokens_of(spec, 3, 12))
    lengths, pools = [6, 2, 4], bool(spec.head and spec.head.pool != "no")
    with torch.no_grad():
        memory = heard(model, 3)
        alone = [model(row[None], memory=only(memory, b))[0] for b, row in enumerate(tokens_BT)]
        close(model(tokens_BT, memory=memory), torch.stack(alone), "rows together")
        short = [
            model(row[None, :n], memory=only(memory, b))[0]
            for b, (row, n) in enumerate(zip(tokens_BT, lengths, strict=True))
        ]
        together = model(tokens_BT[:, :6], n_new=lengths, memory=memory)
        for row, n in enumerate(lengths):
            close(together[row, : 1 if pools else n], short[row], f"ragged, row {row}")


def a_source_in_a_batch_is_the_source_alone(spec: s.Spec) -> None:
    """What the encoder is given may be ragged, too: its padding is seen by none."""
    model, tokens_BT = double(spec, arrays_of(spec)), torch.tensor(tokens_of(spec, 2, 5))
    source_BS = torch.tensor(source_of(spec, 2))
    with torch.no_grad():
        memory = model.encode(source_BS, [9, 4])
        together_BTV = model(tokens_BT, memory=memory)
        for row, n in enumerate((9, 4)):
            alone = model(tokens_BT[[row]], memory=model.encode(source_BS[[row], :n]))
            close(together_BTV[[row]], alone, f"source {row}")


def ragged_rows_go_on_as_when_alone(spec: s.Spec) -> None:
    """Rows of different lengths in one state, while the prompt is read and after."""
    model, tokens_BT = double(spec, arrays_of(spec)), torch.tensor(tokens_of(spec, 3, 12))
    lengths = [6, 2, 4]
    with torch.no_grad():
        memory = heard(model, 3)
        alone_BTV = model(tokens_BT, memory=memory)
        state = State(3, capacity=14)
        got_BTV = model(tokens_BT[:, :6], state, n_new=lengths, memory=memory)
        assert state.lengths == lengths
        for row, n in enumerate(lengths):
            close(got_BTV[row, :n], alone_BTV[row, :n], f"ragged, row {row}")
        for step in range(4):
            at = [n + step for n in lengths]
            new_BT = torch.stack([tokens_BT[row, [i]] for row, i in enumerate(at)])
            got_BTV = model(new_BT, state)
            for row, i in enumerate(at):
                close(got_BTV[row, 0], alone_BTV[row, i], f"ragged, row {row}, token {i}")


def a_state_keeps_what_it_is_told(spec: s.Spec) -> None:
    """Rows selected, dropped and repeated; the newest tokens forgotten and others read instead."""
    model, tokens_BT = double(spec, arrays_of(spec)), torch.tensor(tokens_of(spec, 3, 12))
    with torch.no_grad():
        state, rows, memory = State(3, capacity=12, spare=5), [2, 0, 2], heard(model, 3)
        model(tokens_BT[:, :5], state, memory=memory)
        state.select(rows)
        new_BT = tokens_BT[:, 5:8]
        whole_BT = torch.cat((tokens_BT[rows, :5], new_BT), 1)
        close(model(new_BT, state), model(whole_BT, memory=only(memory, *rows))[:, 5:], "rows selected")
        state.truncate(3)
        assert state.lengths == [3, 3, 3]
        whole_BT = torch.cat((whole_BT[:, :3], tokens_BT[:, 8:]), 1)
        close(model(tokens_BT[:, 8:], state), model(whole_BT, memory=only(memory, *rows))[:, 3:], "cut back")
        state.select([1])
        whole_BT = torch.cat((whole_BT[1:2], tokens_BT[:1, :2]), 1)
        close(model(tokens_BT[:1, :2], state), model(whole_BT, memory=only(memory, rows[1]))[:, -2:], "one row left")


# --- L5 ---------------------------------------------------------------------------------------------------------------


def the_future_moves_nothing(spec: s.Spec) -> None:
    """Other tokens from j on leave every earlier logit alone: to the bit in float32; mixtures 1e-12 in float64, where
    a product's bits depend on how many tokens an expert meets, and each token's experts are the same."""
    mixed = has_experts(spec)
    model, tokens_BT = double(spec, arrays_of(spec)), torch.tensor(tokens_of(spec, 2, 14))
    model = model if mixed else model.float()
    moved = False
    with torch.no_grad():
        memory = heard(model, 2)
        for trace in (None, {}):
            want_BTV = model(tokens_BT, trace=trace, memory=memory)
            for cut in (1, 4, 9, 13):
                other_BT = tokens_BT.clone()
                other_BT[:, cut:] = (other_BT[:, cut:] + 1) % spec.vocab_size
                seen: dict[str, Tensor] | None = None if trace is None else {}
                got_BTV = model(other_BT, trace=seen, memory=memory)
                if mixed:
                    close(got_BTV[:, :cut], want_BTV[:, :cut], f"before token {cut}")
                    same_experts(trace or {}, seen or {}, cut)
                else:
                    assert torch.equal(got_BTV[:, :cut], want_BTV[:, :cut]), f"a logit before token {cut} moved"
                moved |= not torch.equal(got_BTV[:, cut:], want_BTV[:, cut:])
    assert moved


def same_experts(before: dict[str, Tensor], after: dict[str, Tensor], n_tokens: int) -> None:
    for place, gates in before.items():
        if place.endswith("chosen"):
            was, now = (g.unflatten(0, (2, -1))[:, :n_tokens] for g in (gates, after[place]))
            assert torch.equal(was, now), place


# --- L8 ---------------------------------------------------------------------------------------------------------------


def a_spec_is_what_was_written(spec: s.Spec) -> None:
    text = json.dumps(to_json(spec), allow_nan=False)
    again = from_json(json.loads(text))
    assert again == spec
    assert ledger.Ledger.of(again).rows == ledger.Ledger.of(spec).rows
    assert json.dumps(to_json(again)) == text


# --- first weights ----------------------------------------------------------------------------------------------------


def an_untrained_norm_says_one(spec: s.Spec) -> None:
    """Whatever is stored, gains multiply by 1 at first; and the model starts from the reference's numbers."""
    arrays = initial.initial(spec, "gpt2", seed=3)
    reference.check_arrays(spec, arrays)
    rng = np.random.default_rng(0)
    for part in [part for _, part in walk(spec.main) if isinstance(part, s.Residual)]:
        for name, norm in part.parts():
            if isinstance(norm, s.Norm) and norm.gain:
                place = f"{'decoder' if spec.decoder else 'encoder'}.layers.{layer_of(spec, part)}.{name}"
                x = rng.normal(size=(4, norm.width))
                held = {"weight": arrays[f"{place}.weight"], "bias": np.zeros(norm.width)}
                plain = {"weight": np.full(norm.width, 1.0 - norm.plus_one), "bias": np.zeros(norm.width)}
                here = reference.Where(np.arange(4))
                close(reference.run(norm, Weights(held), x, here), reference.run(norm, Weights(plain), x, here), place)
    model = Transformer(spec, initial="gpt2", seed=3)
    assert all(np.array_equal(model.arrays()[name], array.astype(np.float32)) for name, array in arrays.items())


def layer_of(spec: s.Spec, residual: s.Residual) -> int:
    return next(i for i, layer in enumerate(spec.main.layers) if residual in layer)
