"""Has the loss exploded? What the last losses say of the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from statistics import fmean, pstdev

KEPT, ENOUGH = 64, 16  # losses that are remembered, and how many of them say anything
NATS, DEVIATIONS, TIMES = 1.0, 6.0, 10.0
IN_A_ROW = 10  # steps that are left out before a run gives up


class Spikes:
    """The last losses of the steps that were taken. They are kept with each checkpoint, so that a resumed run judges as
    the uninterrupted one."""

    def __init__(self, losses: Iterable[float] = ()) -> None:
        self.losses = deque(losses, maxlen=KEPT + 1)

    def most(self, last: int | None = None) -> float:
        """The largest loss that is still training: above the mean of those before by a nat and six of their deviations,
        or TIMES the largest of them where they are few. last: how many of the losses that are known say it; None: all.
        """
        some = list(self.losses)[:last][-KEPT:]
        if len(some) >= ENOUGH:
            return fmean(some) + NATS + DEVIATIONS * pstdev(some)
        return NATS + TIMES * max(some) if some else inf

    def cause(self, loss: float) -> str | None:
        """Why this loss is no longer training. A loss that is no number is another fault, and none of these."""
        if loss > self.most():
            some = list(self.losses)[-KEPT:]
            return f"the loss is {loss:.4f}, after {fmean(some):.4f} over the {len(some)} steps before it"
        return None

    def keep(self, loss: float) -> None:
        self.losses.append(loss)
