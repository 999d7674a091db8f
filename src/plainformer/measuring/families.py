"""Who may see whom, on three tasks: fill a gap, go on with a row, turn a source around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plainformer.families import decoders, encoder_decoders
from plainformer.measuring import Measured, jobs, spread
from plainformer.model import Transformer, cross_entropy
from plainformer.records import replace
from plainformer.spec import Spec, Stack

SYMBOLS, GAP, HALF, WIDTH, BATCH, STEPS, RATE, SEEDS = 8, 8, 4, 32, 64, 600, 3e-3, (0, 1, 2)


@dataclass(frozen=True)
class Rows:
    """What is read, what should be said (-1: nothing), and what an encoder reads, if there is one."""

    tokens_BT: Tensor
    targets_BT: Tensor
    source_BS: Tensor | None = None


def symbols(generator: torch.Generator, length: int) -> Tensor:
    return torch.randint(SYMBOLS, (BATCH, length), generator=generator)


def gap(generator: torch.Generator) -> Rows:
    """Three tokens, the middle one hidden: it is the sum of its neighbours, modulo the symbols."""
    ends = symbols(generator, 2)
    left, right = ends.split(1, 1)
    nothing = torch.full_like(left, -1)
    tokens_BT = torch.cat((left, torch.full_like(left, GAP), right), 1)
    return Rows(tokens_BT, torch.cat((nothing, (left + right) % SYMBOLS, nothing), 1))


def sums(generator: torch.Generator) -> Rows:
    """Two tokens, then each the sum of the two before it, modulo the symbols; at each place what comes next."""
    row = [*symbols(generator, 2).split(1, 1)]
    while len(row) < 2 * HALF:
        row.append((row[-2] + row[-1]) % SYMBOLS)
    tokens_BT = torch.cat(row, 1)
    nothing = torch.full((BATCH, 1), -1)
    return Rows(tokens_BT, torch.cat((nothing, tokens_BT[:, 2:], nothing), 1))


def turned(generator: torch.Generator, hidden: bool = False) -> Rows:
    """A source, and the same from its end to its beginning, each token to be said from those before it. hidden: the
    source that is read is another one."""
    source_BS = symbols(generator, HALF)
    targets_BT = source_BS.flip(1)
    tokens_BT = torch.cat((torch.full((BATCH, 1), GAP), targets_BT[:, :-1]), 1)
    return Rows(tokens_BT, targets_BT, symbols(generator, HALF) if hidden else source_BS)


def one_stack(causal: bool) -> Spec:
    """Two layers; causal: each token sees those before it, else all of them."""
    spec = decoders.gpt2(vocab_size=SYMBOLS + 1, max_seq_len=2 * HALF, d_model=WIDTH, n_layers=2, n_heads=4)
    assert isinstance(spec.decoder, Stack)
    return replace(spec, decoder=replace(spec.decoder, causal=causal))


def all_seen() -> Spec:
    return one_stack(causal=False)


def past_seen() -> Spec:
    return one_stack(causal=True)


def two_stacks() -> Spec:
    return encoder_decoders.bart(
        vocab_size=SYMBOLS + 1,
        max_seq_len=2 * HALF,
        d_model=WIDTH,
        n_encoder_layers=2,
        n_decoder_layers=2,
        n_encoder_heads=4,
        n_decoder_heads=4,
        d_encoder_ff=4 * WIDTH,
        d_decoder_ff=4 * WIDTH,
    )


def loss_of(model: Transformer, rows: Rows) -> Tensor:
    memory = None if rows.source_BS is None else model.encode(rows.source_BS)
    scores_BTV = model(rows.tokens_BT, memory=memory)
    return cross_entropy(scores_BTV, rows.targets_BT).sum() / (rows.targets_BT >= 0).sum()


def trained(spec: Spec, task: Callable[[torch.Generator], Rows], seed: int) -> tuple[Transformer, float]:
    """The model, and the mean loss of its last ten steps."""
    model = Transformer(spec, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, task(generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, sum(losses[-10:]) / 10


def writing(model: Transformer, seed: int) -> float:
    """The loss on rows of sums, each token asked for while none after it is there."""
    rows = sums(torch.Generator().manual_seed(1000 + seed))
    total = 0.0
    with torch.no_grad():
        for n in range(2, 2 * HALF):
            scores_B1V = model(rows.tokens_BT[:, :n])[:, -1:]
            total += cross_entropy(scores_B1V, rows.targets_BT[:, n - 1 : n]).mean().item()
    return total / (2 * HALF - 2)


def hidden(generator: torch.Generator) -> Rows:
    return turned(generator, hidden=True)


CASES: tuple[tuple[str, str, Callable[[], Spec], Callable[[torch.Generator], Rows]], ...] = (
    ("fill a gap", "all of the row", all_seen, gap),
    ("fill a gap", "what came before", past_seen, gap),
    ("go on", "all of the row", all_seen, sums),
    ("go on", "what came before", past_seen, sums),
    ("turn around", "a source, and what came before", two_stacks, turned),
    ("turn around", "another source, and what came before", two_stacks, hidden),
)


def measure() -> Measured:
    rows = []
    for task, sees, build, of in jobs(CASES):
        found = [trained(build(), of, seed) for seed in SEEDS]
        written = [writing(model, seed) for seed, (model, _) in zip(SEEDS, found, strict=True)] if of is sums else []
        row = {"task": task, "a token sees": sees, "loss in training": spread([loss for _, loss in found])}
        rows.append(row | {"loss when writing": spread(written) if written else ""})
    note = (
        f"{SYMBOLS} symbols, width {WIDTH}, 2 layers a stack, AdamW at {RATE:g}, {STEPS} steps of {BATCH} rows; "
        "nats: the median of the seeds, and the least and most. Writing: no token after the one asked for is there."
    )
    return Measured(rows, SEEDS, note)
