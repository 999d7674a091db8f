"""What can be wrong with a request, said so that a person can mend it. One class of error for all of plainformer."""

from __future__ import annotations

from collections.abc import Iterable

from plainformer.records import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that cannot be: where it stands, what stands there, the rule it breaks, what to do."""

    where: str  # a field ("n_heads"), a flag ("--top-k"), a file
    value: object
    rule: str
    hint: str = ""

    def __str__(self) -> str:
        said = repr(self.value)
        shown = said if len(said) <= 80 else f"{said[:32]}...{said[-45:]}"  # the end of a path is what tells
        return f"{self.where} = {shown}: {self.rule}" + (f"; {self.hint}" if self.hint else "")


class PlainformerError(ValueError):
    """The request cannot be. Holds every fault that was found, not only the first."""

    def __init__(self, faults: Fault | Iterable[Fault]) -> None:
        self.faults = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def refuse(where: str, value: object, rule: str, hint: str = "") -> PlainformerError:
    """A PlainformerError with one fault, to be raised."""
    return PlainformerError(Fault(where, value, rule, hint))
