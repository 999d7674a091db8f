"""`plainformer generate MODEL`: text from a model, written as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING
from unicodedata import category

from plainformer.cli.trained import trained, wait_asleep
from plainformer.faults import Fault, PlainformerError, refuse

if TYPE_CHECKING:
    from plainformer.generation import Row, Sampling
    from plainformer.model import Transformer
    from plainformer.text import Tokenizer

ROWS_AT_ONCE = 64  # more are written in turns: each row holds the keys and values of its whole text
TEMPERATURE = 0.8


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run, a step's folder in it, or a folder with weights")
    what = parser.add_argument_group("what to continue")
    what.add_argument(
        "--prompt",
        metavar="TEXT",
        help="the beginning; left out or empty, the text starts as after a newline if the vocabulary has one, "
        "else a space, else its first token",
    )
    what.add_argument("--prompts", metavar="FILE", help="one prompt a line; an empty line is an empty prompt")
    what.add_argument("--samples", type=int, default=1, metavar="N", help="texts for each prompt (1)")
    ends = parser.add_argument_group("where to end")
    ends.add_argument(
        "--max-new-tokens", type=int, default=200, metavar="N", help="at most (200), or to the end of the context"
    )
    ends.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be given several times"
    )
    draw = parser.add_argument_group("how to choose each token")
    draw.add_argument("--temperature", type=float, metavar="X", help=f"below 1 bolder, above 1 wilder ({TEMPERATURE})")
    draw.add_argument("--top-k", type=int, metavar="N", help="of the N likeliest only; 0: of all (0)")
    draw.add_argument("--top-p", type=float, metavar="X", help="of the likeliest that hold this much together (1)")
    draw.add_argument("--min-p", type=float, metavar="X", help="of those at least X times as likely as the best (0)")
    draw.add_argument("--greedy", action="store_true", help="the likeliest always, as at temperature 0")
    draw.add_argument(
        "--seed", type=int, metavar="N", help="the same seed, the same text; left out, one is drawn and told"
    )
    speed = parser.add_argument_group("how fast")
    speed.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "int8"),
        help="weights in this form; smaller is read sooner. int8: rounded, by how much is told (as they are stored)",
    )
    form = parser.add_argument_group("how to say it")
    form.add_argument("--json", action="store_true", help="one object: seed, rows of new tokens and text, speed")
    form.add_argument("--no-cache", action="store_true", help="read the whole text again for each token: to compare")


@dataclass(frozen=True)
class Asked:
    """One text to write: where its prompt comes from, the prompt, its tokens, and which sample of it this is."""

    where: str
    prompt: str
    tokens: list[int]
    sample: int


@dataclass
class Written:
    asked: Asked
    row: Row
    text: str


def run(args: argparse.Namespace) -> int:
    wait_asleep()
    check(args)
    prompts = list(prompts_of(args))
    model, tokenizer = trained(args.model)
    quick(model, args.dtype)
    sampling = sampling_of(args, seed_of(args))
    asked = fitted(prompts, args, tokenizer, model.spec.max_seq_len)
    if args.seed is None and not sampling.greedy:
        tell(f"seed {sampling.seed} (drawn: --seed {sampling.seed} gives the same text)")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character gets a stand-in, not an error
    started, written = perf_counter(), []
    for start in range(0, len(asked), ROWS_AT_ONCE):
        some = asked[start : start + ROWS_AT_ONCE]
        for one in write(model, tokenizer, some, sampling, args, stream=len(asked) == 1 and not args.json):
            written.append(one)
            if len(asked) > 1 and not args.json:
                print(f"{heading(one.asked, args)}\n{shown(one.asked.prompt + one.text)}", flush=True)
    seconds = perf_counter() - started
    n_new = sum(len(one.row.new) for one in written)
    if args.json:
        rows = [
            {
                "prompt": one.asked.prompt,
                "tokens": one.row.new,
                "text": one.text,
                "finish_reason": one.row.finish_reason,
            }
            for one in written
        ]
        said = {"seed": sampling.seed, "rows": rows, "tokens_per_second": n_new / max(seconds, 1e-9)}
        print(json.dumps(said))  # ASCII alone: the same text in every encoding, and nothing a terminal obeys
    else:
        tell(f"{n_new:,} tokens in {seconds:.2f} s: {n_new / max(seconds, 1e-9):,.0f} tokens/s")
    return 0


def quick(model: Transformer, dtype: str | None) -> None:
    """Weights in the form that is asked for, read as fast as this machine can."""
    import torch

    from plainformer.rows import quicken

    if dtype in ("float32", "bfloat16"):
        model.to(getattr(torch, dtype))
    _, reason, error = quicken(model, "int8" if dtype == "int8" else None)
    if reason:
        tell(f"{reason}: torch's own products are used, which read more slowly")
    if error:
        tell(f"weights in 8 bits: off by {error:.2%} (root mean square, of that of the weights)")


def shown(text: str) -> str:
    """The text itself; on a terminal with pictures for what it would obey: colours, titles, the cursor, direction."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c in "\n\t" or category(c) not in ("Cc", "Cf") or c == "\u200d" else seen(c) for c in text)


def seen(character: str) -> str:
    """A control character by its picture or its number."""
    code = ord(character)
    return chr(0x2400 + code) if code < 32 else f"<U+{code:04X}>"


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def check(args: argparse.Namespace) -> None:
    """Refuse flags that contradict each other, before anything is loaded."""
    faults = []
    if args.prompt is not None and args.prompts is not None:
        faults.append(Fault("--prompt and --prompts", args.prompts, "cannot both be given"))
    if args.samples < 1:
        faults.append(Fault("--samples", args.samples, "must be at least 1"))
    if args.max_new_tokens < 0:
        faults.append(Fault("--max-new-tokens", args.max_new_tokens, "must be at least 0"))
    if "" in args.stop:
        faults.append(Fault("--stop", "", "an empty text would stop before the first character"))
    if args.greedy:
        for flag in ("temperature", "top_k", "top_p", "min_p"):
            if getattr(args, flag) not in (None, 0):
                rule = "--greedy takes the likeliest token always"
                faults.append(Fault(flagged(flag), getattr(args, flag), rule, "give one of the two"))
    if args.samples > 1 and (args.greedy or args.temperature == 0):
        rule = "without chance all samples of a prompt are the same text"
        faults.append(Fault("--samples", args.samples, rule, "give a temperature above 0"))
    if faults:
        raise PlainformerError(faults)
    sampling_of(args, 0 if args.seed is None else args.seed)


def flagged(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def seed_of(args: argparse.Namespace) -> int:
    """The seed that is given, or a drawn one; 0 where nothing is left to chance."""
    from secrets import randbelow

    if args.seed is not None:
        return int(args.seed)
    return 0 if args.greedy or args.temperature == 0 else randbelow(2**32)


def sampling_of(args: argparse.Namespace, seed: int) -> Sampling:
    """How to choose, from the flags; faults under the flags' names."""
    from plainformer.generation import Sampling

    temperature = TEMPERATURE if args.temperature is None else args.temperature
    try:
        return Sampling(
            temperature=0.0 if args.greedy else temperature,
            top_k=args.top_k or None,
            top_p=1.0 if args.top_p is None else args.top_p,
            min_p=args.min_p or 0.0,
            seed=seed,
        )
    except PlainformerError as error:
        raise PlainformerError(replace(fault, where=flagged(fault.where)) for fault in error.faults) from None


def prompts_of(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(where it comes from, prompt). Without any, one that is empty."""
    if args.prompts is None:
        yield "--prompt", args.prompt or ""
        return
    from plainformer.text import read_text

    lines = "".join(read_text(Path(args.prompts), tell)).split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise refuse("--prompts", args.prompts, "the file is empty", "one prompt a line")
    for i, line in enumerate(lines, start=1):
        yield f"{args.prompts}:{i}", line.removesuffix("\r")


def fitted(
    prompts: list[tuple[str, str]], args: argparse.Namespace, tokenizer: Tokenizer, max_seq_len: int
) -> list[Asked]:
    """Each prompt as tokens, once for each sample. What the context cannot hold is told: of a prompt only its end is
    read, and a text ends where the context does."""
    asked: list[Asked] = []
    seen: Counter[tuple[int, ...]] = Counter()
    cut, short = [], []
    for where, prompt in prompts:
        tokens = tokenizer.encode(prompt, where).tolist() or [tokenizer.start_id]
        n, n_new = len(tokens), args.max_new_tokens
        if n + min(n_new, 1) > max_seq_len:
            tokens = tokens[-max(max_seq_len - n_new, max_seq_len // 2, 1) :]
            cut.append(
                f"{where}: {n:,} tokens, the context holds {max_seq_len:,}: only the last {len(tokens):,} are read"
            )
        if len(tokens) + n_new > max_seq_len:
            room = max_seq_len - len(tokens)
            short.append(f"{where}: the context holds {max_seq_len:,} tokens: at most {room:,} new ones, not {n_new:,}")
        key = tuple(tokens)
        first = seen[key]
        seen[key] += args.samples  # the same prompt on two lines: more samples of it
        asked += [Asked(where, prompt, tokens, sample) for sample in range(first, seen[key])]
    for lines in filter(None, (cut, short)):
        others = len(lines) - 1
        tell(lines[0] + (f" (and so for {others:,} more prompt{'s' * (others > 1)})" if others else ""))
    return asked


def write(
    model: Transformer,
    tokenizer: Tokenizer,
    asked: list[Asked],
    sampling: Sampling,
    args: argparse.Namespace,
    stream: bool,
) -> list[Written]:
    """Write these texts together; to stdout as it comes if asked to."""
    from plainformer.generation import Decoding, pieces

    decoding = Decoding(
        model,
        [one.tokens for one in asked],
        args.max_new_tokens,
        sampling,
        stop_ids=tokenizer.control.values(),
        cached=not args.no_cache,
        n_tokens=tokenizer.n_tokens,
        never=[i for i, piece in enumerate(tokenizer.pieces[: model.spec.vocab_size]) if piece is None],
        past_context="stop",
        nth=[one.sample for one in asked],
    )
    texts = [""] * len(asked)
    if stream:
        print(shown(asked[0].prompt), end="", flush=True)
    for row, piece in pieces(decoding, tokenizer, args.stop):
        texts[row] += piece
        if stream:
            print(shown(piece), end="", flush=True)
    if stream:
        print()
    return list(map(Written, asked, decoding.rows, texts))


def heading(asked: Asked, args: argparse.Namespace) -> str:
    """A line before each of several texts."""
    names = [f"{asked.where}"] if args.prompts is not None else []
    names += [f"sample {asked.sample + 1}"] if args.samples > 1 or not names else []
    return f"--- {', '.join(names)}"
