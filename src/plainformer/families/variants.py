"""The same spec with one habit changed: to see what the habit is for."""

from __future__ import annotations

from typing import Any

from plainformer.faults import refuse
from plainformer.records import replace
from plainformer.spec import Residual, Spec, Stack
from plainformer.tree import rewrite


def post_norm(spec: Spec) -> Spec:
    """Norms on each sum instead of before each part, and none at the end: the layout of Vaswani et al. 2017.

    Holds one norm less than the pre-norm spec. Refuses residuals with several branches: they have no one norm to move.
    """

    def change(part: Any) -> Any:
        if isinstance(part, Stack):
            return replace(part, norm_last=None)
        if isinstance(part, Residual):
            if len(part.branches) != 1:
                raise refuse("branches", [branch.name for branch in part.branches], "post-norm needs one branch each")
            branch = part.branches[0]
            if part.norm_sum is None and branch.norm_in is not None:
                return replace(part, branches=(replace(branch, norm_in=None),), norm_sum=branch.norm_in)
        return part

    return rewrite(spec, change)


def without_residual(spec: Spec) -> Spec:
    """Each layer's output instead of its sum with what came in."""
    return rewrite(spec, lambda part: replace(part, add=False) if isinstance(part, Residual) else part)
