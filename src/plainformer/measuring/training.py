"""What `plainformer train TEXT` does where nothing else is said: parameters, seconds, the loss."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np

from plainformer.checkpoint.runs import spec_of
from plainformer.ledger import Ledger
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import Text, note
from plainformer.training import carry_on, start

SEEDS = (0,)  # a minute or two each
ASKED: dict[str, Any] = {}  # of `plainformer train`, beside the text


def measure(text: Text) -> Measured:
    losses, walls, processors = [], [], []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "text.txt"
        letters_N = np.array(list(text.letters))[np.concatenate([text.train_N, text.valid_N])]
        file.write_text("".join(letters_N), encoding="utf-8")
        for seed in jobs(SEEDS):
            began, ran = perf_counter(), process_time()
            outcome = carry_on(start([file], Path(folder) / f"run-{seed}", ASKED | {"seed": seed}), quiet=True)
            assert outcome.evaluation is not None
            spec = spec_of(Path(folder) / f"run-{seed}")
            losses.append(outcome.evaluation.loss)
            walls.append(perf_counter() - began)
            processors.append(process_time() - ran)
    row = {
        "what": "plainformer train, every default",
        "parameters": f"{Ledger.of(spec).total:,}",
        "context": spec.max_seq_len,
        "seconds, start to end": spread(walls, 1),
        "of all cores": spread(processors, 1),
        "nats a character": spread(losses, 4),
    }
    return Measured([row], SEEDS, note(text, "Over the whole validation part, each target once."))
