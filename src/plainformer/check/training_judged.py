"""A GPT of theirs that learns one batch by heart: its losses, and what it then says, held against each other."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from plainformer import formulas as f
from plainformer.check.answer import Answer, broke
from plainformer.check.case import Case
from plainformer.check.comparing import fitted
from plainformer.check.process import Trouble, packed
from plainformer.check.steps import Array

TRAINING_FOR = 60.0  # seconds that their training may take
N_COMMON = 6  # tokens that the rows asked at last share with those that were learnt
FLAWED = 0.3  # of an untrained loss: what is more than this after all steps has not been learnt


def nats(logits: Array, tokens: Array) -> float:
    """The mean of -ln p(next token)."""
    said = f.log_softmax(logits[:, :-1])
    return float(-np.take_along_axis(said, tokens[:, 1:, None], -1).mean())


def judge_training(case: Case, answer: Callable[..., Answer]) -> Answer:
    inputs = case.inputs(0, {})
    tokens, vocab, n_steps = inputs["tokens"], inputs["vocab_size"], inputs["n_steps"]
    kwargs = {str(at): packed(inputs[own]) for own, at in case.plan.places.items()}
    reply = case.theirs.ask(
        seconds=TRAINING_FOR, do="call", name=case.plan.thing, args=[], kwargs=kwargs, precision="float32"
    )
    if isinstance(reply, Trouble):
        return broke(answer, reply)
    out = reply.out if isinstance(reply.out, list) else []
    losses = fitted(out[0], (n_steps,)) if len(out) == 2 else None
    logits = fitted(out[1], (*inputs["asked"].shape, vocab)) if len(out) == 2 else None
    if losses is None or logits is None:
        wanted = f"({n_steps} losses, logits of shape {(*inputs['asked'].shape, vocab)})"
        return answer("broke", f"it does not return {wanted}")
    untrained, said = math.log(vocab), nats(logits[: len(tokens)], tokens)
    held = f"{n_steps} steps on {tokens.size} tokens of {vocab} kinds, seed {case.seed}"
    told = f"losses {losses[0]:.3f} to {losses[-1]:.3f}, recomputed {said:.3f}, untrained ln {vocab} = {untrained:.3f}"
    seen = np.abs(logits[: len(tokens), :N_COMMON] - logits[len(tokens) :, :N_COMMON]).max()
    wrong = ""
    if not (np.isfinite(losses).all() and np.isfinite(logits).all()):
        wrong = "there is nan or infinity in its losses or logits: a step too large, a logarithm of 0?"
    elif seen > 1e-4 * max(1.0, float(np.abs(logits).max())):
        wrong = f"it sees the future: other tokens from place {N_COMMON} on move the logits before it by {seen:.2g}"
    elif not 0.6 * untrained < losses[0] < 1.6 * untrained:
        wrong = "untrained, its loss is not near ln(vocab_size): first weights too large, or a sum in place of a mean?"
    elif losses[-1] > 0.9 * losses[0]:
        wrong = "the loss does not fall: are gradients set to zero, is the step against them, does each weight get one?"
    elif said > 2 * losses[-1] + 0.1 * untrained:
        wrong = "its losses fall, its logits do not tell the next token: what are they held against?"
    elif said > FLAWED * untrained:
        wrong = "it learns, but does not learn one batch by heart: more rate, attention over all that it may see?"
    if wrong:
        return answer("wrong", wrong, notes=(told,), held=held, gap=said)
    return answer("right", f"it learns one batch by heart: {told}", held=held)
