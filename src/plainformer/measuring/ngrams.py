"""What counting letters predicts of a text, and what a small transformer does, with attention and without."""

from __future__ import annotations

from math import log

from plainformer.families import llamas
from plainformer.lessons.ngrams import surprisal_by_counts
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import CONTEXT, Text, nats, note, trained
from plainformer.records import replace
from plainformer.spec import Spec, Stack

LONGEST, SEEDS, STEPS = 6, (0, 1, 2), 300


def without_attention(spec: Spec) -> Spec:
    """The feed-forward networks alone: each token is read without any other."""
    assert isinstance(spec.decoder, Stack)
    layers = tuple(
        tuple(residual for residual in layer if residual.branches[0].name != "attention")
        for layer in spec.decoder.layers
    )
    return replace(spec, decoder=replace(spec.decoder, layers=layers))


def measure(text: Text) -> Measured:
    V = len(text.letters)
    rows = [{"what": f"every one of {V} letters alike", "letters before": "0", "nats a character": f"{log(V):.3f}"}]
    longest = min(LONGEST, int(63 * log(2) / log(V)) - 1)
    for length, nats_N in enumerate(surprisal_by_counts(text.train_N, text.valid_N, V, longest)):
        rows.append({"what": "counts", "letters before": f"{length}", "nats a character": f"{nats_N.mean():.3f}"})
    spec = llamas.small(vocab_size=V, max_seq_len=CONTEXT, d_model=64, n_layers=2, n_heads=4)
    for change in jobs((True, False)):
        one = without_attention(spec) if change else spec
        losses = [nats(trained(one, text, seed, STEPS), text, None) for seed in SEEDS]
        rows.append(
            {
                "what": f"transformer with{'out' * change} attention",
                "letters before": "0, and itself" if change else f"up to {CONTEXT - 1}",
                "nats a character": spread(losses, 3),
            }
        )
    words = (
        "Counts: each context backs off to one letter less (Witten and Bell's method C). Transformers: 2 layers of "
        f"width 64, {STEPS} steps of 16 rows of {CONTEXT}, Muon; the median of the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))
