"""L9 as functions of a spec: each raises AssertionError where what a cost says is not what is measured.

Tests call them on many specs; sabotaged twins break a rule or the model first and expect the same functions to raise.
B batch, T tokens.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import measured
from laws import heard
from plainformer import cost as sizes
from plainformer import spec as s
from plainformer.cost import Cost, activations, training
from plainformer.cost.serving import Serving
from plainformer.cost.tape import Pass
from plainformer.mixers import LatentAttention
from plainformer.model import Transformer
from plainformer.states import State
from plainformer.training.optimizers import Optimizers
from plainformer.training.recipe import RECIPES
from plainformer.training.step import products_in
from plainformer.tree import walk
from specs import arrays_of, tokens_of

BATCH, LENGTH, SOURCE = 2, 13, 9  # SOURCE: what laws.heard gives the encoder to read
SIZES = {torch.float32: 4, torch.bfloat16: 2}


def a_pass(spec: s.Spec, batch: int = BATCH, length: int = LENGTH, **how: object) -> Pass:
    return Pass(batch, length, n_source(spec), processor=True, **how)  # type: ignore[arg-type]


def n_source(spec: s.Spec) -> int:
    return SOURCE if spec.encoder is not None and spec.decoder is not None else 0


def equal(said: int, found: int, what: str) -> None:
    assert said == found, f"{what}: {said:,} said, {found:,} measured"


def weights_take_what_is_said(spec: s.Spec) -> None:
    with torch.device("meta"):
        model = Transformer(spec)
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        held = sum(w.nbytes for w in model.to(dtype).parameters())
        equal(Cost.of(spec).weights_bytes(name), held, f"weights in {name}")


def work_is_what_torch_counts(spec: s.Spec) -> None:
    """Forward and backward, of all weights and of adapters alone."""
    cost = Cost.of(spec, batch_size=BATCH, seq_len=LENGTH, source_len=SOURCE)
    for rank in (None, 2):
        mine = spec if rank is None else training.adapted(spec, rank)
        said = training.operations(cost, mine, training.Plan(lora=rank))
        model = measured.ready(mine, adapters=rank is not None)
        done = measured.operations(model, BATCH, LENGTH, n_source(spec))
        for way, one, other in zip(("forward", "backward"), said, done, strict=True):
            equal(one, other, f"operations {way}, adapters of rank {rank}")


def autograd_keeps_what_is_said(spec: s.Spec) -> None:
    """By plain and by fused attention, in 32 and 16 bits; one row, one token and several."""
    for dtype, size in SIZES.items():
        model = measured.ready(spec, dtype)
        for batch, length in ((BATCH, LENGTH), (1, LENGTH), (BATCH, 1)) if size == 4 else ((BATCH, LENGTH),):
            for plain in (False, True):
                said = activations.activations(spec, a_pass(spec, batch, length, fused=not plain, size=size))
                found = measured.kept(model, batch, length, n_source(spec), plain)
                equal(said, found, f"kept of {batch} x {length} in {dtype}, {'plain' if plain else 'fused'}")


def autocast_keeps_what_is_said(spec: s.Spec) -> None:
    """Weights and stream in 32 bits, products in 16, as `train` does it; narrow copies of weights among what is kept.
    Not of a mixture whose tokens leave an expert alone: its weights are then not copied."""
    model = measured.ready(spec)
    for plain in (False, True):
        with products_in("bfloat16", LENGTH):
            found = measured.kept(model, BATCH, LENGTH, n_source(spec), plain)
        said = activations.activations(spec, a_pass(spec, fused=not plain, size=4, autocast=True))
        equal(said, found, f"kept with products in 16 bits, {'plain' if plain else 'fused'}")


def published_models_do_and_keep_what_is_said(spec: s.Spec) -> None:
    """At full size, as shapes without storage: operations both ways, and what autograd keeps of plain attention."""
    cost = Cost.of(spec, batch_size=BATCH, seq_len=LENGTH, source_len=SOURCE)
    with torch.device("meta"):
        model = Transformer(spec)
        done = measured.operations(model, BATCH, LENGTH, n_source(spec))
        found = measured.kept(model, BATCH, LENGTH, n_source(spec), plain=True)
    for way, one, other in zip(
        ("forward", "backward"), training.operations(cost, spec, training.Plan()), done, strict=True
    ):
        equal(one, other, f"operations {way}")
    equal(activations.activations(spec, a_pass(spec, fused=False, size=4)), found, "kept")


def adapters_keep_what_is_said(spec: s.Spec) -> None:
    """Frozen weights ask for no input of theirs; nothing is kept before the first adapter."""
    spec = training.adapted(spec, 2)
    model = measured.ready(spec, adapters=True)
    for plain in (False, True):
        said = activations.activations(spec, a_pass(spec, fused=not plain, size=4, adapters=True))
        equal(said, measured.kept(model, BATCH, LENGTH, n_source(spec), plain), "kept where adapters alone are trained")


def what_is_made_again_is_there_once_more(spec: s.Spec) -> None:
    """At the worst moment of a forward and a backward pass, layers or attentions made again."""
    model = measured.ready(spec)
    for recompute, plain in (("full", False), ("full", True), ("selective", True)):
        with measured.layers_again() if recompute == "full" else measured.scores_again():
            found = measured.kept_at_most(model, BATCH, LENGTH, n_source(spec), plain)
        said = activations.activations(spec, a_pass(spec, fused=not plain, size=4, recompute=recompute))
        equal(said, found, f"kept with {recompute} recomputation")


def with_the_norms_of_an_accelerator_less_is_kept(spec: s.Spec) -> None:
    """By a norm that keeps what the fused one of accelerators does, in place of the pieces that processors run."""
    with measured.fused_norms():
        found = measured.kept(measured.ready(spec), BATCH, LENGTH, n_source(spec), plain=True)
    of = replace(a_pass(spec, fused=False, size=4), processor=False)
    equal(activations.activations(spec, of), found, "kept with fused norms")


def a_step_with_a_state_does_what_is_said(spec: s.Spec) -> None:
    """One token more for each row. Not of latents: said is one row expanded, as where the expanded ones are kept."""
    if not spec.main.causal or any(isinstance(part, LatentAttention) for _, part in walk(spec)):
        return
    model, tokens_BT = double(spec), torch.tensor(tokens_of(spec, BATCH, LENGTH))
    state = State(BATCH, LENGTH)
    model(tokens_BT[:, :-1], state, memory=heard(model, BATCH))
    with FlopCounterMode(display=False) as counter:
        model(tokens_BT[:, -1:], state, trace=measured.Nothing())
    said = Serving.of(Cost.of(spec, batch_size=BATCH, seq_len=LENGTH, source_len=SOURCE)).step_flops
    equal(said, counter.get_total_flops(), "operations of a step")


def a_state_holds_what_is_said(spec: s.Spec) -> None:
    """Keys and values, or latents, and those of what the encoder said; of a window only its own slots."""
    if not spec.main.causal:
        assert sizes.Cache.of(spec).parts == ()
        return
    model, cost = double(spec), Cost.of(spec, batch_size=BATCH, seq_len=LENGTH, source_len=SOURCE, kv_dtype="float64")
    state = State(BATCH, LENGTH)
    model(torch.tensor(tokens_of(spec, BATCH, LENGTH)), state, memory=heard(model, BATCH))
    equal(8 * BATCH * cost.cache.numbers(LENGTH), nbytes(state.kept.values()), "keys and values, or latents")
    equal(cost.cross_cache_bytes, nbytes(state.said.values()), "of what the encoder said")


def a_window_needs_what_is_said(spec: s.Spec) -> None:
    """Slots that matter to the newest token, found by spoiling each of each layer: as many as the cost says."""
    if not spec.main.causal:
        return
    model, tokens_BT = double(spec), torch.tensor(tokens_of(spec, 1, LENGTH))
    memory = heard(model, 1)

    def read(place: str = "", which: int = 0, slot: int = 0, by: float = 0.0) -> Tensor:
        state = State(1, LENGTH, spare=LENGTH)  # all that was read: slots are found, not taken on trust
        model(tokens_BT[:, :-1], state, memory=memory)
        if place:
            state.kept[place][which][:, :, slot] += by
        return model(tokens_BT[:, -1:], state)

    def matters(place: str, slot: int) -> bool:
        """Its value or its key, far off to one side or the other: one of them is seen, however little it weighed."""
        ways = ((which, by) for which in (1, 0) for by in (1e6, -1e6))
        return any(not torch.equal(read(place, which, slot, by), clean) for which, by in ways)

    state, clean, needed = State(1, LENGTH, spare=LENGTH), read(), 0
    model(tokens_BT, state, memory=memory)
    for place, pair in state.kept.items():
        n_slots = 1 + sum(matters(place, slot) for slot in range(LENGTH - 1))  # 1: its own
        needed += n_slots * sum(y.shape[1] * y.shape[3] for y in pair)
    equal(sizes.Cache.of(spec).numbers(LENGTH), needed, "numbers that the newest token needs")


def optimizers_hold_what_is_said(spec: s.Spec) -> None:
    """Moments and momenta; AdamW's counts of steps, 4 bytes a tensor, are not counted."""
    passes, layers = spec.main.passes, spec.main.layers
    if passes is not None and set(passes) != set(range(len(layers))):
        return  # a layer that no pass uses has no gradient
    cost = Cost.of(spec, batch_size=BATCH, seq_len=LENGTH)
    for recipe, plan in (("muon", "muon"), ("adamw", "adamw-float32")):
        model = measured.ready(spec)
        measured.answer(model, BATCH, LENGTH, n_source(spec), plain=False).sum().backward()
        optimizers = Optimizers(model, RECIPES[recipe].rates)
        optimizers.step()
        held = sum(y.nbytes for name, y in optimizers.tensors().items() if not name.startswith("step."))
        said = training.Training.of(cost, training.Plan(optimizer=plan))
        master = training.OPTIMIZERS[plan].master * cost.ledger.total  # of mixed precision: ours are float32
        equal(said.optimizer - master, held, f"state of {recipe}")
        slopes = sum(w.grad.nbytes for w in model.parameters() if w.grad is not None)
        equal(slopes, 4 * cost.ledger.total, "gradients")


def double(spec: s.Spec) -> Transformer:
    model = Transformer(spec, initial=None).double().eval().requires_grad_(False)
    model.take(arrays_of(spec).items())
    return model


def nbytes(pairs: object) -> int:
    return sum(y.nbytes for pair in pairs for y in pair)  # type: ignore[attr-defined]
