"""`plainformer generate` with an encoder: the likeliest tokens behind each mask of a prompt."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from plainformer.faults import Fault, PlainformerError, refuse

if TYPE_CHECKING:
    from plainformer.model import Transformer
    from plainformer.text import Tokenizer

N_BEST = 5
NOT_HERE: tuple[str, ...] = (
    "source",
    "chat",
    "beams",
    "greedy",
    "temperature",
    "top_p",
    "min_p",
    "seed",
    "repetition_penalty",
    "stop",
)
NOT_HERE += ("length_penalty", "logprobs", "samples", "max_new_tokens", "past_context")


def filled(model: Transformer, tokenizer: Tokenizer, prompts: list[tuple[str, str]], args: argparse.Namespace) -> int:
    """Fill the masks of each prompt and say with what."""
    from plainformer.cli.generate import arguments, shown
    from plainformer.generation import fill

    mask, parser = mask_of(tokenizer), argparse.ArgumentParser()
    arguments(parser)
    if faults := [
        Fault(f"--{name.replace('_', '-')}", getattr(args, name), "this model is an encoder: it fills masks")
        for name in NOT_HERE
        if getattr(args, name) != parser.get_default(name)
    ]:
        raise PlainformerError(faults)
    rows = [masked(tokenizer, mask, prompt, where) for where, prompt in prompts]
    for (where, _), row in zip(prompts, rows, strict=True):
        if len(row) > model.spec.max_seq_len:
            rule = f"tokens, the context holds {model.spec.max_seq_len:,}: which to leave out is not for us to say"
            raise refuse(where, len(row), rule)
    found = fill(model, rows, tokenizer.control[mask], args.top_k or N_BEST, tokenizer.n_tokens)
    answers = [
        {
            "prompt": prompt,
            "masks": [
                {
                    "place": one.place,
                    "best": [{"token": i, "text": tokenizer.decode([i]), "probability": p} for i, p in one.best],
                }
                for one in masks
            ],
        }
        for (_, prompt), masks in zip(prompts, found, strict=True)
    ]
    if args.json:
        print(json.dumps({"rows": answers}))
        return 0
    for masks, (where, prompt) in zip(found, prompts, strict=True):
        if len(prompts) > 1:
            print(f"--- {where}: {shown(prompt)}")
        for n, one in enumerate(masks, start=1):
            if len(masks) > 1:
                print(f"{mask} {n}")
            for i, p in one.best:
                print(f"{p:10.6f}  {shown(tokenizer.decode([i]))}")
    return 0


def mask_of(tokenizer: Tokenizer) -> str:
    """What the tokenizer calls its mask."""
    names = (tokenizer.named.get("mask_token"), "[MASK]", "<mask>")
    found = next((name for name in names if name in tokenizer.control), None)
    if found is None:
        raise refuse("mask_token", None, "the tokenizer has none", "an encoder's folder names it")
    return str(found)


def masked(tokenizer: Tokenizer, mask: str, prompt: str, where: str) -> list[int]:
    """The prompt between its publisher's control tokens, each marker of a mask as the mask; no other marker counts.
    Spaces before a mask go with it where the tokenizer has it so."""
    parts = prompt.split(mask)
    if len(parts) == 1:
        raise refuse(where, prompt, f"holds no mask: this model fills {mask}", f"--prompt 'The capital is {mask}.'")
    takes_spaces = any(
        one["content"] == mask and one.get("lstrip") for one in json.loads(tokenizer.file).get("added_tokens", [])
    )
    tokens: list[int] = []
    for n, part in enumerate(parts, start=1):
        text = part.rstrip() if takes_spaces and n < len(parts) else part
        tokens += [*tokenizer.encode(text, where).tolist()] if text else []
        tokens += [tokenizer.control[mask]] if n < len(parts) else []
    return [int(token) for token in tokenizer.frame(tokens)]
