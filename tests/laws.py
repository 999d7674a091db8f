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
from plainformer.model import Transformer
from plainformer.reference import Weights
from plainformer.states import State, Where
from plainformer.tree import from_json, to_json, walk
from specs import arrays_of, has_experts, tokens_of

CLOSE = 1e-12


def double(spec: s.Spec, arrays: dict[str, np.ndarray]) -> Transformer:
    model = Transformer(spec, initial=None).double().eval()
    model.take(arrays.items())
    return model


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
        fused_BTV = model(torch.tensor(tokens_BT))  # the fused kernel; with a trace, its plain twin
        plain_BTV = model(torch.tensor(tokens_BT), trace=seen)
    for b, tokens_T in enumerate(tokens_BT):
        kept: dict[str, np.ndarray] = {}
        want_TV = reference.logits(spec, arrays, tokens_T, trace=kept)
        close(fused_BTV[b], want_TV, "logits")
        close(plain_BTV[b], want_TV, "logits of the plain twin")
        assert list(kept) == list(seen)
        for place, array in kept.items():
            got = seen[place].unflatten(0, (len(tokens_BT), -1))[b] if place.endswith("gates") else seen[place][b]
            close(got, array, place)
        if spec.head:
            nats_BT = kernels.cross_entropy(fused_BTV[b : b + 1, :-1], torch.tensor(tokens_BT[b : b + 1, 1:]))
            close(nats_BT[0], formulas.cross_entropy(want_TV[:-1], tokens_T[1:]), "loss")


def each_part_alone_is_the_reference(spec: s.Spec) -> None:
    """Every part that a module is built for, by itself, on the same input."""
    n_tokens = 11
    parts = {part for _, part in walk(spec) if type(part) in m.build.registry and not isinstance(part, s.Spec)}
    assert parts
    for part in parts:
        arrays, module = arrays_of(part), m.build(part).double()
        mine = dict(module.named_parameters())
        assert list(mine) == list(arrays)
        with torch.no_grad():
            for name, array in arrays.items():
                mine[name].copy_(torch.from_numpy(array))
            close(*both(part, module, arrays, n_tokens), type(part).__name__)


def both(part: object, module: nn.Module, arrays: dict[str, np.ndarray], n_tokens: int) -> tuple[Tensor, np.ndarray]:
    """(the module's answer, the reference's) for one input that fits the part."""
    rng = np.random.default_rng(7)
    here, there = Where(torch.arange(n_tokens)[None], causal=True), reference.Where(np.arange(n_tokens))

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
            return module(torch.tensor(rows)[None])[0], run(rows)
        case s.Attention():
            x = stream(s_in(part.q))
            return module(torch.tensor(x)[None], here)[0], run(x)
        case s.Stack():
            x = stream(next(inner.part.out.n_out for _, inner in walk(part) if is_attention(inner)))
            return module(torch.tensor(x)[None], here)[0], run(x)
        case s.Experts():
            x = stream(part.router.scores.n_in)
            return module(torch.tensor(x)[None], here)[0], run(x)
        case s.ChosenSoftmaxRouter():
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
            return module(torch.tensor(x), torch.tensor(table)), run(x, Weights(named).at("head"))
        case s.FeedForward():
            x = stream(part.up.n_in)
        case s.NormedLinear():
            x = stream(part.linear.n_in)
        case s.Linear():
            x = stream(part.n_in)
        case s.Norm():
            x = stream(part.width)
        case _:
            raise AssertionError(f"no test of {type(part).__name__} alone")
    return module(torch.tensor(x)), run(x)


def is_attention(part: object) -> bool:
    return isinstance(part, s.Branch) and isinstance(part.part, s.Attention)


def s_in(part: s.Projection) -> int:
    return (
        part.n_in
        if isinstance(part, s.Linear)
        else s_in(part.linear if isinstance(part, s.NormedLinear) else part.down)
    )


# --- L4 ---------------------------------------------------------------------------------------------------------------


def in_pieces(model: Transformer, tokens_BT: Tensor, sizes: Iterable[int], state: State) -> Tensor:
    return torch.cat([model(piece, state) for piece in tokens_BT.split(list(sizes), dim=1)], dim=1)


def a_cache_changes_no_logit(spec: s.Spec) -> None:
    """One token at a time, and a prompt in chunks, as all at once; the reference's own cache too."""
    arrays, tokens_BT = arrays_of(spec), torch.tensor(tokens_of(spec, 3, 12))
    model = double(spec, arrays)
    with torch.no_grad():
        want_BTV = model(tokens_BT)
        for sizes in ((1,) * 12, (5, 1, 4, 2), (12,)):
            state = State(3, capacity=14)
            close(in_pieces(model, tokens_BT, sizes, state), want_BTV, f"in pieces of {sizes}")
            assert state.lengths == [12, 12, 12]
    state = reference.State()
    pieces = [reference.logits(spec, arrays, piece, state) for piece in np.split(tokens_BT[0].numpy(), (1, 2, 6, 7))]
    close(np.concatenate(pieces), want_BTV[0], "the reference in pieces")
    state.truncate(5)
    close(reference.logits(spec, arrays, tokens_BT[0, 5:], state), want_BTV[0, 5:], "the reference, cut back")


def a_cache_changes_no_greedy_token(spec: s.Spec) -> None:
    """In float32 too: the same ids with and without a cache."""
    model = double(spec, arrays_of(spec)).float()
    tokens_BT = torch.tensor(tokens_of(spec, 2, 4))
    state, new_BT = State(2, capacity=spec.max_seq_len), tokens_BT
    with torch.no_grad():
        for _ in range(8):
            best = model(tokens_BT)[:, -1].argmax(-1, keepdim=True)
            assert torch.equal(best, model(new_BT, state)[:, -1].argmax(-1, keepdim=True))
            new_BT = best % spec.vocab_size  # a spec without a head scores the stream
            tokens_BT = torch.cat((tokens_BT, new_BT), 1)


def a_row_in_a_batch_is_the_row_alone(spec: s.Spec) -> None:
    """Rows of different lengths: as each alone, while the prompt is read and after."""
    model, tokens_BT = double(spec, arrays_of(spec)), torch.tensor(tokens_of(spec, 3, 12))
    lengths = [6, 2, 4]
    with torch.no_grad():
        alone_BTV = torch.cat([model(row[None]) for row in tokens_BT])
        close(model(tokens_BT), alone_BTV, "rows together")
        state = State(3, capacity=14)
        x_BTD = model.hidden(tokens_BT[:, :6], state, n_new=lengths)  # the ends of the short rows are no part of them
        assert state.lengths == lengths
        for row, n in enumerate(lengths):
            close(model.logits(x_BTD)[row, :n], alone_BTV[row, :n], f"ragged, row {row}")
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
        state, rows = State(3, capacity=12), [2, 0, 2]
        model(tokens_BT[:, :5], state)
        state.select(rows)
        new_BT = tokens_BT[:, 5:8]
        whole_BT = torch.cat((tokens_BT[rows, :5], new_BT), 1)
        close(model(new_BT, state), model(whole_BT)[:, 5:], "rows selected")
        state.truncate(3)
        assert state.lengths == [3, 3, 3]
        whole_BT = torch.cat((whole_BT[:, :3], tokens_BT[:, 8:]), 1)
        close(model(tokens_BT[:, 8:], state), model(whole_BT)[:, 3:], "cut back")
        state.select([1])
        assert state.n_bytes == sum(k.nbytes + v.nbytes for k, v in state.kept.values())
        whole_BT = torch.cat((whole_BT[1:2], tokens_BT[:1, :2]), 1)
        close(model(tokens_BT[:1, :2], state), model(whole_BT)[:, -2:], "one row left")


# --- L5 ---------------------------------------------------------------------------------------------------------------


def the_future_moves_nothing(spec: s.Spec) -> None:
    """Other tokens from j on leave every earlier logit alone: to the bit in float32; mixtures 1e-12 in float64, where
    a product's bits depend on how many tokens an expert meets, and each token's experts are the same."""
    mixed = has_experts(spec)
    model, tokens_BT = double(spec, arrays_of(spec)), torch.tensor(tokens_of(spec, 2, 14))
    model = model if mixed else model.float()
    moved = False
    with torch.no_grad():
        for trace in (None, {}):
            want_BTV = model(tokens_BT, trace=trace)
            for cut in (1, 4, 9, 13):
                other_BT = tokens_BT.clone()
                other_BT[:, cut:] = (other_BT[:, cut:] + 1) % spec.vocab_size
                seen: dict[str, Tensor] | None = None if trace is None else {}
                got_BTV = model(other_BT, trace=seen)
                if mixed:
                    close(got_BTV[:, :cut], want_BTV[:, :cut], f"before token {cut}")
                    same_experts(trace or {}, seen or {}, cut)
                else:
                    assert torch.equal(got_BTV[:, :cut], want_BTV[:, :cut]), f"a logit before token {cut} moved"
                moved |= not torch.equal(got_BTV[:, cut:], want_BTV[:, cut:])
    assert moved


def same_experts(before: dict[str, Tensor], after: dict[str, Tensor], n_tokens: int) -> None:
    for place, gates in before.items():
        if place.endswith("gates"):
            was, now = ((g > 0).unflatten(0, (2, -1))[:, :n_tokens] for g in (gates, after[place]))
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
