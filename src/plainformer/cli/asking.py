"""What `generate` is asked to write: prompts and sources as tokens, and what is told of those that do not fit."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.text import Tokenizer


MESSAGE = '[{"role": "user", "content": "..."}]'


@dataclass(frozen=True)
class Asked:
    """One text to write: where its prompt comes from, the prompt, its tokens, which sample of it this is, and what an
    encoder reads before it."""

    where: str
    prompt: str
    tokens: list[int]
    sample: int
    source: str | None = None
    source_tokens: list[int] | None = None


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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


def turns_of(file: str) -> list[dict[str, str]]:
    """A conversation: a JSON list of messages, alone or as what an object calls messages. Refused by its place: what is
    no message of a role and a text."""
    from plainformer.text import read_text

    text = "".join(read_text(Path(file), tell))
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse("--messages", file, f"is not JSON: {str(error)[:80]}") from None
    said = said.get("messages") if isinstance(said, dict) else said
    if not isinstance(said, list) or not said:
        raise refuse("--messages", file, "must be a list of messages", MESSAGE)
    for i, one in enumerate(said):
        if not isinstance(one, dict) or not all(isinstance(one.get(key), str) for key in ("role", "content")):
            raise refuse(
                f"--messages {file}: message {i + 1}", one, "must have a role and a content, both text", MESSAGE
            )
    return said


def prompt_tokens(
    tokenizer: Tokenizer, prompt: str, where: str, chat: bool, turns: list[dict[str, str]] | None = None
) -> list[int]:
    """A prompt's tokens, after those that the publisher puts before a text; or as what the user says in a chat, after
    the turns that there were."""
    if chat:
        said = [{"role": "user", "content": prompt}] if prompt or not turns else []
        return list(map(int, tokenizer.chat([*(turns or []), *said])))
    return [*tokenizer.around[0], *tokenizer.encode(prompt, where).tolist()] or [tokenizer.start_id]


def fitted(
    prompts: list[tuple[str, str]], args: argparse.Namespace, tokenizer: Tokenizer, max_seq_len: int
) -> list[Asked]:
    """Each prompt as tokens, once for each sample. What the context cannot hold is told: of a prompt only its end is
    read, and a text ends where the context does, unless it is to slide. Both are refused where that is asked for."""
    asked: list[Asked] = []
    seen: Counter[tuple[int, ...]] = Counter()
    cut, short = [], []
    for where, prompt in prompts:
        tokens = prompt_tokens(tokenizer, prompt, where, args.chat, getattr(args, "turns", None))
        n, n_new, policy = len(tokens), args.max_new_tokens, args.past_context
        if policy == "refuse" and n + n_new > max_seq_len:
            rule = f"{n:,} tokens of {where} and these must fit the context ({max_seq_len:,})"
            raise refuse("--max-new-tokens", n_new, rule, f"it can have {max(max_seq_len - n, 0):,}")
        if n + min(n_new, 1) > max_seq_len:
            tokens = tokens[-max(max_seq_len - n_new, max_seq_len // 2, 1) :]
            cut.append(
                f"{where}: {n:,} tokens, the context holds {max_seq_len:,}: only the last {len(tokens):,} are read"
            )
        if len(tokens) + n_new > max_seq_len and policy == "stop":
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


def sourced(args: argparse.Namespace, tokenizer: Tokenizer, start: int | None, max_seq_len: int) -> list[Asked]:
    """Each source as an encoder reads it, once for each sample; its text begins with the model's own start token."""
    if start is None:
        rule = "neither generation_config.json nor config.json says which token a text begins with"
        raise refuse("decoder_start_token_id", None, rule, "add it to generation_config.json")
    prompt = args.prompt or ""
    begun = [start, *(tokenizer.encode(prompt, "--prompt").tolist() if prompt else [])]
    asked: list[Asked] = []
    for text in args.source:
        tokens = tokenizer.frame(tokenizer.encode(text, "--source")).tolist()
        if len(tokens) > max_seq_len:
            n_after = len(tokenizer.around[1])
            tell(f"--source: {len(tokens):,} tokens, the context holds {max_seq_len:,}: only the first are read")
            tokens = tokens[: max_seq_len - n_after] + tokens[len(tokens) - n_after :]
        asked += [Asked("--source", prompt, begun, sample, text, tokens) for sample in range(args.samples)]
    return asked
