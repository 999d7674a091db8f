"""Has the loss exploded? What the last losses say of the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import fmean, pstdev

KEPT, ENOUGH = 64, 16  # losses that are remembered, and how many of them say anything
NATS, DEVIATIONS = 1.0, 6.0
IN_A_ROW = 10  # steps that are left out before a run gives up


class Spikes:
    """The last losses of the steps that were taken. They are kept with each checkpoint, so that a resumed run judges as
    the uninterrupted one."""

    def __init__(self, losses: Iterable[float] = ()) -> None:
        self.losses = deque(losses, maxlen=KEPT)

    def cause(self, loss: float) -> str | None:
        """Why this loss is no longer training: above the last ones' mean by a nat and six of their deviations.

        A loss that is no number is another fault, and none of these.
        """
        if len(self.losses) < ENOUGH:
            return None
        mean = fmean(self.losses)
        if loss > mean + NATS + DEVIATIONS * pstdev(self.losses):
            return f"the loss is {loss:.4f}, after {mean:.4f} over the {len(self.losses)} steps before it"
        return None

    def keep(self, loss: float) -> None:
        self.losses.append(loss)
