"""`plainformer inspect MODEL`: what a model does with a prompt: surprisal, causality, attention maps."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plainformer.cli.model_argument import to_build
from plainformer.cli.trained import has_weights, trained, wait_asleep
from plainformer.faults import refuse

if TYPE_CHECKING:
    import numpy as np

    from plainformer.model import Transformer
    from plainformer.spec import Spec

MOST_DRAWN = 64  # tokens in a picture: more cannot be read
MOST_MADE_UP = 500_000_000  # parameters of a shape that is given first weights to look at


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="a run, a folder with weights; of a preset or a config the first weights"
    )
    parser.add_argument("--prompt", metavar="TEXT", required=True, help="the text to look at")
    parser.add_argument("--svg", metavar="FILE", help="draw the attention maps")
    parser.add_argument("--json", action="store_true", help="one object, the attention weights in it")


def run(args: argparse.Namespace) -> int:
    if args.svg is not None and (not args.svg.endswith(".svg") or Path(args.svg).is_dir()):
        raise refuse("--svg", args.svg, "must be the name of a .svg file", "--svg attention.svg")
    wait_asleep()
    model, tokens, texts, n_tokens = opened(args.model, args.prompt)
    from plainformer.probing import attention_maps, causality, log2_odds

    log2_TV = log2_odds(model, tokens, n_tokens)
    bits = [None, *(-log2_TV[i, token].item() for i, token in enumerate(tokens[1:]))]
    maps = attention_maps(model, tokens)
    verdict = causality(model, tokens)
    if args.svg:
        write(args.svg, picture(maps, texts, args))
        print(f"drawn: {args.svg}", file=sys.stderr)
    if args.json:
        facts: dict[str, Any] = {
            "prompt": args.prompt,
            "tokens": tokens,
            "texts": texts,
            "surprisal": bits,
            "causal": verdict.causal,
            "largest_leak": verdict.largest,
            "uses_positions": verdict.uses_positions,
            "attention": {place: weights_HTT.tolist() for place, weights_HTT in maps.items()},
        }
        print(json.dumps(facts))
        return 0
    draw_table(texts, bits)
    known = [b for b in bits if b is not None]
    if known:
        counted = "1 token" if len(known) == 1 else f"{len(known)} tokens"
        print(f"\n{sum(known):.2f} bits in {counted}: {sum(known) / len(known):.3f} bits each")
    heads = sum(len(weights_HTT) for weights_HTT in maps.values())
    print(f"attention: {heads} heads in {len(maps)} layers" + ("" if args.svg else " (--svg FILE draws their maps)"))
    print(f"causal: {causal_words(verdict.causal, verdict.largest, verdict.n_changes)}")
    print(f"positions: {'used' if verdict.uses_positions else 'not used: without them the logits are the same'}")
    return 0


def opened(text: str, prompt: str) -> tuple[Transformer, list[int], list[str], int]:
    """The model, the prompt's tokens, their texts, how many tokens there are. Of a shape without weights: its first
    weights, and each different character of the prompt a token."""
    if not prompt:
        raise refuse("--prompt", prompt, "is empty: there is nothing to look at")
    if has_weights(text):
        model, tokenizer = trained(text)
        refuse_pairs(text, model.spec)
        tokens = tokenizer.encode(prompt, "--prompt").tolist()
        n_tokens = min(tokenizer.n_tokens, model.spec.vocab_size)
        texts = [tokenizer.decode([token]) for token in tokens]
    else:
        model = made_up(text)
        number = {character: i for i, character in enumerate(dict.fromkeys(prompt))}
        n_tokens, texts = model.spec.vocab_size, list(prompt)
        tokens = [number[character] for character in prompt]
    if len(tokens) > model.spec.max_seq_len:
        raise refuse("--prompt", f"{len(tokens)} tokens", f"the context holds {model.spec.max_seq_len}", "cut it")
    return model, tokens, texts, n_tokens


def refuse_pairs(text: str, spec: Spec) -> None:
    if spec.encoder and spec.decoder:
        raise refuse("MODEL", text, "reads a source beside the prompt: there is none here", "generate has --source")


def made_up(text: str) -> Transformer:
    """A shape with its first weights, seed 0; told."""
    from plainformer.ledger import Ledger

    spec = to_build(text).spec
    refuse_pairs(text, spec)
    total = Ledger.of(spec).total
    if total > MOST_MADE_UP:
        raise refuse("MODEL", text, f"has no weights, and {total:,} parameters are too many to make some", "give a run")
    from plainformer.model import Transformer

    print(f"{text} has no weights: these are its first ones, seed 0, each character a token", file=sys.stderr)
    return Transformer(spec)


def causal_words(causal: bool, largest: float, n_changes: int) -> str:
    if not n_changes:
        return "one token has no later one to change"
    if not causal:
        return f"no: changing a later token moved an earlier logit by {largest:.3g}"
    how = "by a bit" if largest == 0 else f"beyond rounding ({largest:.1g})"
    changed = "1 token" if n_changes == 1 else f"{n_changes} tokens, one at a time,"
    return f"yes: changing {changed} moved no earlier logit {how}"


def visible(text: str) -> str:
    """A token's text with a mark for what would not be seen or would move the cursor."""
    from plainformer.report.svg import escape  # control characters by their pictures

    marked = "".join("␣" if c == " " else c if c in "&<>\"'" else escape(c) for c in text)
    return "".join(c if c.isprintable() else f"U+{ord(c):04X}" for c in marked) or "(nothing)"


def draw_table(texts: Sequence[str], bits: Sequence[float | None]) -> None:
    """Position, token, its surprisal in bits and as a bar."""
    from plainformer.report.figures import bar
    from plainformer.report.tables import columns, draw, draws_blocks

    most = max((b for b in bits if b is not None), default=0) or 1
    table = columns()
    table.add_column("position", justify="right")
    table.add_column("token", overflow="fold")
    table.add_column("bits", justify="right")
    table.add_column("")
    for i, (text, b) in enumerate(zip(texts, bits, strict=True)):
        drawn = ("", "") if b is None else (f"{b:.2f}", bar(b / most, plain=not draws_blocks(sys.stdout)))
        table.add_row(str(i), visible(text), *drawn)
    draw(sys.stdout, table)


def picture(maps: dict[str, np.ndarray[Any, Any]], texts: Sequence[str], args: argparse.Namespace) -> str:
    """Every head's map, the heads of a layer side by side; of long prompts the last tokens."""
    from plainformer.report.svg import heat_maps

    if len(texts) > MOST_DRAWN:
        print(f"--svg: {len(texts)} tokens: the last {MOST_DRAWN} are drawn", file=sys.stderr)
    shown = [visible(text) for text in texts[-MOST_DRAWN:]]
    each = [
        (f"{place.removeprefix('decoder.')} head {h}", weights_TT[-MOST_DRAWN:, -MOST_DRAWN:].tolist())
        for place, weights_HTT in maps.items()
        for h, weights_TT in enumerate(weights_HTT)
    ]
    across = max(len(weights_HTT) for weights_HTT in maps.values())
    return heat_maps(each, f"Where each token looks: {args.model}", shown, shown, across=across)


def write(path: str, text: str) -> None:
    """A file, whole or not at all."""
    from plainformer.text.files import written_beside

    with written_beside(Path(path)) as file:
        file.write(text.encode())
