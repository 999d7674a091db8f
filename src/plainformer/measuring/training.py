"""What `plainformer train TEXT` does where nothing else is said: parameters, seconds, the loss."""

from __future__ import annotations

from time import perf_counter, process_time

from plainformer.ledger import Ledger
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import Text, nats, note, steps_of
from plainformer.presets import presets
from plainformer.training.recipe import MUON

SEEDS = (0,)  # a minute or two each


def measure(text: Text) -> Measured:
    spec = presets.trainable("small", vocab_size=len(text.letters))
    losses, walls, processors = [], [], []
    for seed in SEEDS:
        began, ran = perf_counter(), process_time()
        run = steps_of(spec, text, seed, MUON.steps, dtype="bfloat16")
        for tenth in jobs(range(1, 11)):
            _, _, model = next(one for one in run if one[0] == MUON.steps * tenth // 10)
        losses.append(nats(model, text, None))
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
