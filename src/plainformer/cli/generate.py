"""`plainformer generate MODEL`: text from a model, written as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar
from unicodedata import category

from plainformer.cli.asking import Asked, fitted, prompts_of, sourced, tell, turns_of
from plainformer.cli.trained import device_at, home, quick, trained, wait_asleep
from plainformer.faults import Fault, PlainformerError, refuse

if TYPE_CHECKING:
    from plainformer.generation import Beams, Published, Row, Rules, Sampling
    from plainformer.model import Transformer
    from plainformer.text import Tokenizer

ROWS_AT_ONCE = 64  # more are written in turns: each row holds the keys and values of its whole text
TEMPERATURE = 0.8
MOST_SAMPLES = 1_000_000  # of each prompt
SAME = "without chance all samples of a prompt are the same text"
CHOSEN = "are told with --json, one for each token that is chosen without beams"
NAMES = {"n_beams": "beams"}  # flags that are called otherwise than what they set


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run, a step's folder in it, or a folder with weights")
    what = parser.add_argument_group("what to continue")
    what.add_argument(
        "--prompt",
        metavar="TEXT",
        help="the beginning; left out or empty, the text starts as after a newline if the vocabulary has one, "
        "else a space, else its first token",
    )
    what.add_argument(
        "--source", action="append", default=[], metavar="TEXT", help="what the encoder of a T5 or a BART reads"
    )
    what.add_argument("--chat", action="store_true", help="the prompt is what a user says, by the model's template")
    what.add_argument(
        "--messages",
        metavar="FILE",
        help='a conversation: JSON, [{"role": "user", "content": "..."}, ...], by the model\'s template; '
        "a prompt is what the user says next",
    )
    what.add_argument(
        "--base", metavar="FOLDER", help="the model that a folder of adapters stands on, if not the one it names"
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
    ends.add_argument(
        "--past-context",
        choices=("stop", "slide", "refuse"),
        default="stop",
        help="a full context ends the text (stop), or its older half is dropped and the rest read again (slide)",
    )
    draw = parser.add_argument_group("how to choose each token")
    draw.add_argument("--temperature", type=float, metavar="X", help=f"below 1 bolder, above 1 wilder ({TEMPERATURE})")
    draw.add_argument("--top-k", type=int, metavar="N", help="of the N likeliest only; 0: of all (0)")
    draw.add_argument("--top-p", type=float, metavar="X", help="of the likeliest that hold this much together (1)")
    draw.add_argument("--min-p", type=float, metavar="X", help="of those at least X times as likely as the best (0)")
    draw.add_argument("--greedy", action="store_true", help="the likeliest always, as at temperature 0")
    draw.add_argument(
        "--repetition-penalty", type=float, metavar="X", help="above 1: what is there already is less likely (1)"
    )
    draw.add_argument("--beams", type=int, metavar="N", help="the likeliest text that N at a time find; not drawn")
    draw.add_argument("--length-penalty", type=float, metavar="X", help="of beams: above 0 longer texts win (1)")
    draw.add_argument(
        "--seed", type=int, metavar="N", help="the same seed, the same text; left out, one is drawn and told"
    )
    speed = parser.add_argument_group("how fast")
    speed.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "int8"),
        help="weights in this form; smaller is read sooner. int8: rounded, by how much is told (as they are stored)",
    )
    speed.add_argument("--device", default="cpu", metavar="NAME", help="where: cpu, cuda, cuda:1, mps (cpu)")
    form = parser.add_argument_group("how to say it")
    form.add_argument("--json", action="store_true", help="one object: seed, rows of new tokens and text, speed")
    form.add_argument("--logprobs", action="store_true", help="with --json: ln p of each token, by the model alone")
    form.add_argument("--no-cache", action="store_true", help="read the whole text again for each token: to compare")


@dataclass
class Written:
    asked: Asked
    row: Row
    text: str


def run(args: argparse.Namespace) -> int:
    wait_asleep()
    check(args)
    prompts = list(prompts_of(args))
    if args.messages is not None:
        args.chat, args.turns = True, turns_of(args.messages)
    device = device_at(args.device, args.dtype)
    model, tokenizer = trained(args.model, args.base)
    quick(model, args.dtype, device)
    if model.spec.decoder is None:
        from plainformer.cli.filling import filled

        return filled(model, tokenizer, prompts, args)
    way = way_of(args, model, tokenizer)
    if model.spec.encoder is not None:
        asked = sourced(args, tokenizer, way.published.start, model.spec.max_seq_len)
    else:
        asked = fitted(prompts, args, tokenizer, model.spec.max_seq_len)
    if args.seed is None and not way.sampling.greedy and not way.beams:
        tell(f"seed {way.sampling.seed} (drawn: --seed {way.sampling.seed} gives the same text)")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character gets a stand-in, not an error
    started, written, alone, at_once = perf_counter(), [], len(asked) == 1, ROWS_AT_ONCE
    if way.beams is not None:  # all samples of a prompt are found together
        asked = [one for one in asked if one.sample % args.samples == 0]
        at_once = max(ROWS_AT_ONCE // way.beams.n_beams, 1)
    for start in range(0, len(asked), at_once):
        some = asked[start : start + at_once]
        for one in write(model, tokenizer, some, way, args, stream=alone and not args.json):
            written.append(one)
            if not alone and not args.json:
                before = "" if args.chat else one.asked.prompt
                print(f"{heading(one.asked, args)}\n{shown(before + one.text)}", flush=True)
    seconds = perf_counter() - started
    n_new = sum(len(one.row.new) for one in written)
    if args.json:
        rows = [in_json(one) for one in written]
        said = {"seed": way.sampling.seed, "rows": rows, "tokens_per_second": n_new / max(seconds, 1e-9)}
        print(json.dumps(said))  # ASCII alone: the same text in every encoding, and nothing a terminal obeys
    else:
        tell(f"{n_new:,} tokens in {seconds:.2f} s: {n_new / max(seconds, 1e-9):,.0f} tokens/s")
    return 0


def in_json(one: Written) -> dict[str, object]:
    """A row; its source, its log-probabilities and its score where there are any."""
    row = one.row
    said: dict[str, object] = {"prompt": one.asked.prompt, "tokens": row.new, "text": one.text}
    said["finish_reason"] = row.finish_reason
    more = {"source": one.asked.source, "logprobs": row.logprobs or None, "score": row.score}
    return said | {key: value for key, value in more.items() if value is not None}


@dataclass(frozen=True)
class Way:
    """How each token is chosen: by chance or as the best, or by beams; what is forced; where a text ends."""

    sampling: Sampling
    rules: Rules
    published: Published
    beams: Beams | None
    stop_ids: tuple[int, ...]


def way_of(args: argparse.Namespace, model: Transformer, tokenizer: Tokenizer) -> Way:
    """The flags, and what the folder says of how its model is to write; told where that counts. An encoder-decoder
    takes the best where nothing is said: it answers a text."""
    from plainformer.generation import Beams, Rules, published

    pair = model.spec.encoder is not None
    if pair != bool(args.source):
        rule = "this model has no encoder" if args.source else "an encoder-decoder reads a text before it writes one"
        raise refuse("--source", args.source or None, rule, "use --prompt" if args.source else '--source "..."')
    if pair and (args.prompts is not None or args.chat or args.messages is not None):
        raise refuse("--source", args.source, "goes with a --prompt for the decoder alone")
    told = published(home(args.model, args.base))
    if told.unfollowed:
        tell(f"the folder also says {', '.join(told.unfollowed)}: there is no rule for that here")
    args.greedy = args.greedy or args.beams == 1  # the likeliest text that one at a time finds
    rules, n_beams, chosen = told.rules, args.beams, any_given(args, "temperature", "top_k", "top_p", "min_p")
    if args.repetition_penalty is not None:
        rules = as_flags(lambda: replace(rules, repetition_penalty=args.repetition_penalty))
    if rules != Rules():
        tell("as the folder says: " + ", ".join(f"{name} {value}" for name, value in differing(rules, Rules())))
    if n_beams is None and pair and not chosen and not args.greedy and told.beams.n_beams > 1:
        n_beams = told.beams.n_beams
        tell(f"{n_beams} beams, as the folder says (--greedy takes each best token)")
    beams = None
    if n_beams is not None and n_beams != 1:
        penalty = told.beams.length_penalty if args.length_penalty is None else args.length_penalty
        beams = as_flags(lambda: replace(told.beams, n_beams=n_beams, length_penalty=penalty))
        if args.samples > n_beams:
            raise refuse("--samples", args.samples, f"{n_beams} beams find {n_beams} texts at most")
        if args.logprobs:
            raise refuse("--logprobs", True, CHOSEN, "--greedy takes each best token")
    elif args.length_penalty is not None:
        raise refuse("--length-penalty", args.length_penalty, "is for --beams, of two or more")
    if pair and not chosen:
        args.greedy = True
    if args.samples > 1 and beams is None and args.greedy:
        raise refuse("--samples", args.samples, SAME, "give a temperature above 0, or --beams")
    sampling = sampling_of(args, seed_of(args))
    ends = told.stop_ids if pair and told.stop_ids else (*tokenizer.control.values(), *told.stop_ids)
    assert isinstance(beams, Beams | None)
    return Way(sampling, rules, told, beams, tuple(dict.fromkeys(ends)))


def any_given(args: argparse.Namespace, *names: str) -> bool:
    return any(getattr(args, name) is not None for name in names)


def differing(one: object, other: object) -> list[tuple[str, object]]:
    """The fields of one that the other has otherwise."""
    return [(name, value) for name, value in vars(one).items() if value != vars(other)[name]]


def shown(text: str) -> str:
    """The text itself; on a terminal with pictures for what it would obey: colours, titles, the cursor, direction."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c in "\n\t" or category(c) not in ("Cc", "Cf") or c == "\u200d" else seen(c) for c in text)


def seen(character: str) -> str:
    """A control character by its picture or its number."""
    code = ord(character)
    return chr(0x2400 + code) if code < 32 else f"<U+{code:04X}>"


def check(args: argparse.Namespace) -> None:
    """Refuse flags that contradict each other, before anything is loaded."""
    faults = []
    if args.prompt is not None and args.prompts is not None:
        faults.append(Fault("--prompt and --prompts", args.prompts, "cannot both be given"))
    if args.samples < 1:
        faults.append(Fault("--samples", args.samples, "must be at least 1"))
    if args.samples > MOST_SAMPLES:
        faults.append(Fault("--samples", args.samples, f"must be at most {MOST_SAMPLES:,}", "run it several times"))
    if args.max_new_tokens < 0:
        faults.append(Fault("--max-new-tokens", args.max_new_tokens, "must be at least 0"))
    if "" in args.stop:
        faults.append(Fault("--stop", "", "an empty text would stop before the first character"))
    if args.greedy:
        for flag in ("temperature", "top_k", "top_p", "min_p"):
            if getattr(args, flag) not in (None, 0):
                rule = "--greedy takes the likeliest token always"
                faults.append(Fault(flagged(flag), getattr(args, flag), rule, "give one of the two"))
    if args.samples > 1 and (args.greedy or args.temperature == 0) and not (args.beams or 0) > 1:
        faults.append(Fault("--samples", args.samples, SAME, "give a temperature above 0"))
    if args.beams is not None:
        for flag in ("temperature", "top_k", "top_p", "min_p", "seed"):
            if getattr(args, flag) is not None:
                faults.append(Fault(flagged(flag), getattr(args, flag), "beams draw nothing", "give one of the two"))
    elif args.length_penalty is not None and not args.source:
        faults.append(Fault("--length-penalty", args.length_penalty, "is for --beams"))
    if args.logprobs and (not args.json or (args.beams or 0) > 1):
        faults.append(Fault("--logprobs", True, CHOSEN))
    if args.chat and args.prompt is None and args.prompts is None and args.messages is None:
        faults.append(Fault("--chat", True, "needs what the user says", '--prompt "..."'))
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
    return as_flags(
        lambda: Sampling(
            temperature=0.0 if args.greedy else temperature,
            top_k=args.top_k or None,
            top_p=1.0 if args.top_p is None else args.top_p,
            min_p=args.min_p or 0.0,
            seed=seed,
        )
    )


T = TypeVar("T")


def as_flags(make: Callable[[], T]) -> T:
    """What is made; its faults under the flags' names."""
    try:
        return make()
    except PlainformerError as error:
        named = (replace(fault, where=flagged(NAMES.get(fault.where, fault.where))) for fault in error.faults)
        raise PlainformerError(named) from None


def write(
    model: Transformer, tokenizer: Tokenizer, asked: list[Asked], way: Way, args: argparse.Namespace, stream: bool
) -> list[Written]:
    """Write these texts together; to stdout as it comes if asked to."""
    from plainformer.generation import Decoding, pieces

    never = [i for i, piece in enumerate(tokenizer.pieces[: model.spec.vocab_size]) if piece is None]
    sources = [one.source_tokens or [] for one in asked] if model.spec.encoder is not None else None
    before = "" if args.chat else asked[0].prompt
    if way.beams is not None:
        written = by_beams(model, tokenizer, asked, way, args, never)
        if stream:
            print(shown(before + written[0].text))
        return written
    decoding = Decoding(
        model,
        [one.tokens for one in asked],
        args.max_new_tokens,
        way.sampling,
        sources=sources,
        stop_ids=way.stop_ids,
        cached=not args.no_cache,
        n_tokens=tokenizer.n_tokens,
        never=never,
        rules=way.rules,
        past_context=args.past_context,
        nth=[one.sample for one in asked],
        logprobs=args.logprobs,
    )
    texts = [""] * len(asked)
    if stream:
        print(shown(before), end="", flush=True)
    for row, piece in pieces(decoding, tokenizer, args.stop):
        texts[row] += piece
        if stream:
            print(shown(piece), end="", flush=True)
    if stream:
        print()
    return list(map(Written, asked, decoding.rows, texts))


def by_beams(
    model: Transformer,
    tokenizer: Tokenizer,
    asked: list[Asked],
    way: Way,
    args: argparse.Namespace,
    never: Sequence[int],
) -> list[Written]:
    """The best texts of each prompt, as many as samples are asked for. A text is cut at its first stop text."""
    from plainformer.generation import Request, TextStream, search

    assert way.beams is not None
    sources = [one.source_tokens or [] for one in asked] if model.spec.encoder is not None else None
    rows, policy = [one.tokens for one in asked], "refuse" if args.past_context == "refuse" else "stop"
    request = Request.of(model, rows, args.max_new_tokens, sources, tokenizer.n_tokens, policy)  # type: ignore[arg-type]
    found, _ = search(request, way.beams, way.rules, way.stop_ids, never, cached=not args.no_cache)
    written = []
    for one, best in zip(asked, found, strict=True):
        for sample, row in enumerate(best[: args.samples]):
            stream = TextStream(tokenizer, args.stop)
            text = "".join(map(stream.push, row.new)) + stream.end()
            row.finish_reason = "stop" if stream.stopped else row.finish_reason
            written.append(Written(replace(one, sample=one.sample + sample), row, text))
    return written


def heading(asked: Asked, args: argparse.Namespace) -> str:
    """A line before each of several texts."""
    names = [f"{asked.where}"] if args.prompts is not None or len(args.source) > 1 else []
    names += [f"sample {asked.sample + 1}"] if args.samples > 1 or not names else []
    return f"--- {', '.join(names)}"
