"""The catalogue of known mistakes: the formulas with one thing wrong, each with words for who made it."""

from __future__ import annotations

from plainformer.check.catalogue import attention, blocks, field, losses, norms, positions, study
from plainformer.check.catalogue.entry import Entry as Entry
from plainformer.check.catalogue.entry import both as both

GROUPS: dict[str, tuple[Entry, ...]] = {
    "norms": norms.NORMS,
    "activations": norms.ACTIVATIONS,
    "gradients": norms.SLOPES,
    "softmax": attention.SOFTMAX,
    "attention": attention.ATTENTION,
    "heads": attention.HEADS,
    "caches": attention.CACHES,
    "rotary": positions.ROTARY,
    "tables": positions.TABLES,
    "feed-forward": blocks.FEED_FORWARD,
    "residuals": blocks.RESIDUALS,
    "blocks": blocks.BLOCKS,
    "decoders": blocks.DECODERS,
    "losses": losses.LOSSES,
    "experts": losses.GATES,
    "sampling": losses.SAMPLING,
    "around a pass": losses.AROUND,
    "as the field had them": field.FIELD,
    "who may see": study.SEEN,
    "counts": study.COUNTS,
    "updates": study.UPDATES,
}
CATALOGUE: dict[str, Entry] = {entry.key: entry for group in GROUPS.values() for entry in group}
