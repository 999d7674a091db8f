"""Tokens a second of GPT-2 small, one row and eight, in each form of weights: beside transformers, beside CTranslate2
where it is there, and beside what the memory gives. Weights by chance: what is read is the same."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from measures import load, tell

import plainformer as pf
from plainformer.cli.trained import wait_asleep

Way = Callable[[int], list[list[int]]]  # rows -> their new tokens
FORMS = ("float32", "bfloat16", "int8")


def prompts(n_rows: int, n: int) -> list[list[int]]:
    """Rows by chance, from a seed."""
    return torch.randint(50257, (n_rows, n), generator=torch.Generator().manual_seed(n_rows)).tolist()


def ours(folder: str, form: str, n_prompt: int, n_new: int) -> Way:
    model = pf.load(folder)
    if form == "bfloat16":
        model.bfloat16()
    pf.quicken(model, "int8" if form == "int8" else None)
    return lambda n_rows: pf.generate(model, prompts(n_rows, n_prompt), n_new, temperature=0).new


def theirs(folder: str, form: str, n_prompt: int, n_new: int) -> Way:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, form)).eval()

    def way(n_rows: int) -> list[list[int]]:
        ids = torch.tensor(prompts(n_rows, n_prompt))
        settings = {"max_new_tokens": n_new, "min_new_tokens": n_new, "do_sample": False, "pad_token_id": 0}
        said = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        return [row[n_prompt:] for row in said.tolist()]

    return way


def converted(folder: Path) -> Path | None:
    """The folder as CTranslate2 wants it, or None where it is not installed. Its converter asks for a vocabulary."""
    try:
        from ctranslate2.converters import TransformersConverter
    except ImportError:
        return None
    from transformers import GPT2Tokenizer

    words = {f"w{i}": i for i in range(50256)} | {"<|endoftext|>": 50256}
    (folder / "vocab.json").write_text(json.dumps(words))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    GPT2Tokenizer(str(folder / "vocab.json"), str(folder / "merges.txt")).save_pretrained(folder)
    TransformersConverter(str(folder)).convert(str(folder / "converted"))
    return folder / "converted"


def third(folder: Path, form: str, n_prompt: int, n_new: int) -> Way:
    import ctranslate2

    threads = torch.get_num_threads()
    model = ctranslate2.Generator(str(folder), compute_type=form, inter_threads=1, intra_threads=threads)

    def way(n_rows: int) -> list[list[int]]:
        words = [*(f"w{i}" for i in range(50256)), "<|endoftext|>"]
        rows = [[words[token] for token in row] for row in prompts(n_rows, n_prompt)]
        settings = {"max_length": n_new, "min_length": n_new, "include_prompt_in_result": False, "sampling_topk": 1}
        return [said.sequences_ids[0] for said in model.generate_batch(rows, **settings)]

    return way


def bandwidth(rounds: int) -> float:
    """Bytes a second of reading 512 MB once, by all threads: the best of several."""
    numbers, best = torch.ones(1 << 27), 0.0
    for _ in range(rounds):
        begun = perf_counter()
        numbers.sum()
        best = max(best, numbers.nbytes / (perf_counter() - begun))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    busy = load()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    with TemporaryDirectory() as made:
        folder, sizes = Path(made), (args.prompt, args.new)
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        ways = {f"plainformer, {form}": ours(made, form, *sizes) for form in FORMS}
        ways |= {f"transformers, {form}": theirs(made, form, *sizes) for form in FORMS[:2]}
        if there := converted(folder):
            ways |= {f"CTranslate2, {form}": third(there, form, *sizes) for form in ("float32", "int8")}
        rates: dict[str, dict[int, list[float]]] = {name: {1: [], 8: []} for name in ways}
        reads = []
        for _ in range(args.rounds):
            reads.append(bandwidth(5))
            for n_rows in (1, 8):
                for name, way in ways.items():
                    begun = perf_counter()
                    said = way(n_rows)
                    rates[name][n_rows].append(n_rows * args.new / (perf_counter() - begun))
                    assert [len(row) for row in said] == [args.new] * n_rows, name
    first = ways["plainformer, float32"](1), ways["transformers, float32"](1)
    n_weights, per = 124_439_808 - 786_432, {"float32": 4, "bfloat16": 2, "int8": 1}
    read = median(reads)
    rows = []
    for name, by_rows in rates.items():
        form = name.split(", ")[1]
        one, eight = median(by_rows[1]), median(by_rows[8])
        share = one * n_weights * per[form] / read
        against = {
            n: median(a / b for a, b in zip(by_rows[n], rates["transformers, float32"][n], strict=True)) for n in (1, 8)
        }
        rows.append(
            {
                "what": name,
                "tokens/s, 1 row": f"{one:.1f}",
                "over transformers float32": f"{against[1]:.2f}",
                "of the memory's speed": f"{share:.0%}",
                "tokens/s, 8 rows": f"{eight:.0f}",
                "over transformers float32, 8 rows": f"{against[8]:.2f}",
            }
        )
    same = "the same" if first[0] == first[1] else "not the same"
    note = (
        f"GPT-2 small, prompt {args.prompt}, {args.new} new tokens, the reading of the prompt included; medians of "
        f"{args.rounds} rounds in turns, {torch.get_num_threads()} threads. The memory gives {read / 1e9:.0f} GB/s to "
        f"torch's sum ({min(reads) / 1e9:.0f} to {max(reads) / 1e9:.0f}); the share is of that. Greedy tokens of "
        f"plainformer and transformers in float32 are {same}."
    )
    tell("decoding", "python bench/decoding.py --save", rows, note, busy, args.save)


if __name__ == "__main__":
    wait_asleep()
    main()
