"""Small models trained on a text: any that is given, else Python's own documentation.

T positions, N characters, B rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from plainformer.faults import refuse
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import Batches, check_lengths
from plainformer.training.evaluation import evaluate
from plainformer.training.optimizers import Optimizers
from plainformer.training.recipe import MUON, Rates
from plainformer.training.schedule import Schedule
from plainformer.training.step import check, gradients

Ids = npt.NDArray[np.int64]
BATCH, CONTEXT = 16, 64
SHORT = 20_000  # characters of the validation part that most measurements score; the rest would change the third digit


@dataclass(frozen=True)
class Text:
    """A text as character numbers, its last tenth kept apart. `name`: what it is, for a note."""

    name: str
    letters: str
    train_N: Ids
    valid_N: Ids


def text_of(path: Path | None) -> Text:
    """A file's text; None: the topics of Python's documentation, which come with it. Refuses what cannot be read."""
    if path is None:
        try:
            from pydoc_data.topics import topics
        except ImportError:
            raise refuse(
                "--text", None, "this Python comes without its documentation", "give a text of yours"
            ) from None
        data = "\n\n".join(topics[name] for name in sorted(topics)).encode()
        what = "Python's own documentation"
    else:
        try:
            data = path.read_bytes()
        except OSError as fault:
            raise refuse("text", str(path), f"cannot be read: {fault.strerror}") from None
        what = path.name
    words = data.decode("utf-8", errors="replace")
    letters = "".join(sorted(set(words)))
    points_N = np.frombuffer(words.encode("utf-32-le"), np.uint32)
    tokens_N = np.searchsorted(np.array([ord(one) for one in letters]), points_N).astype(np.int64)
    cut = len(tokens_N) - len(tokens_N) // 10
    check_lengths(CONTEXT, train=cut, validation=len(tokens_N) - cut)
    name = f"{what}, {len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()[:12]}"
    return Text(name, letters, tokens_N[:cut], tokens_N[cut:])


def steps_of(
    spec: Spec,
    text: Text,
    seed: int,
    n_steps: int,
    rates: Rates = MUON.rates,
    initial: str = "zero_out",
    dtype: str = "float32",
    decay: bool = True,
) -> Iterator[tuple[int, float, Transformer]]:
    """(steps done, the batch's loss in nats, the model) after each step; decay: the rate falls to 0 from 40 % on."""
    model = Transformer(spec, initial=initial, seed=seed)
    optimizers = Optimizers(model, rates)
    decay_from = int(n_steps * 0.4) if decay else 0
    schedule = Schedule(shape="linear" if decay else "constant", steps=n_steps, warmup=10, decay_from=decay_from)
    batches = Batches(text.train_N, spec.max_seq_len, BATCH, seed)
    for step in range(n_steps):
        x_BT, y_BT = (torch.from_numpy(each) for each in batches.at(step))
        optimizers.set(schedule.at(step), step)
        for weight in optimizers.named.values():
            weight.grad = None
        loss = gradients(model, x_BT, y_BT, len(text.letters), BATCH, dtype)
        check(loss, optimizers, None)
        optimizers.step()
        yield step + 1, loss, model


def trained(spec: Spec, text: Text, seed: int, n_steps: int, **how: Any) -> Transformer:
    """The model after its last step; `how` is that of steps_of."""
    *_, (_, _, model) = steps_of(spec, text, seed, n_steps, **how)
    return model


def nats(model: Transformer, text: Text, n: int | None = SHORT) -> float:
    """Nats a character over the first n of the validation part, in blocks side by side; None: over all of it."""
    found = evaluate(model, text.valid_N[:n], np.ones(len(text.letters), np.int64))
    assert found is not None
    return found.loss


def note(text: Text, words: str) -> str:
    return f"{words} Text: {text.name}; its last tenth is the validation part."
