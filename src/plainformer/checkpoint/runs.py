"""Run folders: what a training run keeps, and the model in it.

    RUN/  run.json  spec.json  tokenizer.json  tokens.bin  metrics.jsonl  loss.svg  sample.txt
          tokenizer_config.json where a publisher's tokenizer has a chat template, or names for its control tokens
          checkpoints/step-N/  model.safetensors  optimizer.safetensors  state.json  sums

`sums` holds the SHA-256 of the others, as sha256sum writes them; a step without it, or that differs from it, is not
whole. Where the processes of a run keep shares of the weights, folders `model` and `optimizer` with a file of each
process stand in the place of the two files. No pickle is written or read.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from plainformer.checkpoint.atomic import folder_beside, remove, sha256_of, unwritable
from plainformer.checkpoint.shards import read_shards, sizes_in
from plainformer.faults import refuse
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import Tokenizer
from plainformer.tree import from_json

CHECKPOINTS, MODEL, OPTIMIZER, STATE, SUMS = (
    *("checkpoints", "model.safetensors", "optimizer.safetensors", "state.json", "sums"),
)
SHARES, OPTIMIZER_SHARES = "model", "optimizer"
STEP = re.compile(r"step-(\d+)")
KEPT = 2


def is_run(folder: str | Path) -> bool:
    """Whether a folder is a run: it says how it was started, and has checkpoints."""
    run = Path(folder)  # os.path says no of a name that cannot be, where pathlib raises
    return os.path.isfile(run / "run.json") and os.path.isdir(run / CHECKPOINTS)


def is_step(folder: str | Path) -> bool:
    """Whether a folder is one step's checkpoint, by its name and where it stands."""
    path = Path(folder).resolve()
    return bool(STEP.fullmatch(path.name)) and path.parent.name == CHECKPOINTS and os.path.isdir(path)


def run_of(path: str | Path) -> Path:
    """The run folder that `path` is, or that the step's folder `path` stands in."""
    return Path(path).resolve().parent.parent if is_step(path) else Path(path)


def step_of(folder: Path) -> int:
    """The number in a step's name: how many updates its weights have had."""
    found = STEP.fullmatch(folder.name)
    assert found is not None
    return int(found[1])


def steps_in(run: Path) -> list[Path]:
    """The folders of a run's steps, newest first, whole or not."""
    found = (run / CHECKPOINTS).iterdir() if (run / CHECKPOINTS).is_dir() else ()
    return sorted((path for path in found if is_step(path)), key=step_of, reverse=True)


# Writing


def write_step(
    folder: Path,
    model: Transformer | Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, object],
) -> None:
    """Fill a folder with one step. model: itself, or its weights by name."""
    weights = model.state_dict() if isinstance(model, Transformer) else model
    for name, tensors in ((MODEL, weights), (OPTIMIZER, optimizer)):
        try:
            save_file({key: t.detach().contiguous() for key, t in tensors.items()}, folder / name, {"format": "pt"})
        except SafetensorError as error:  # what the system says reaches us in its words
            raise unwritable(folder / name, error) from None
    dump_state(folder, state)
    sealed(folder)


def dump_state(folder: Path, state: Mapping[str, object]) -> None:
    (folder / STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def sealed(folder: Path) -> None:
    """Write the sums of all that lies in a step's folder; last, for what has them is whole."""
    files = files_in(folder)
    for name in files:  # safetensors gives its files to their owner alone
        (folder / name).chmod((folder / STATE).stat().st_mode)
    sums = (f"{sha256_of(folder / name)}  {name}\n" for name in files)
    (folder / SUMS).write_text("".join(sums), encoding="utf-8")


def files_in(folder: Path) -> list[str]:
    """The files of a step but for its sums, the three in their order or the shares by name."""
    if not is_sharded(folder):
        return [MODEL, OPTIMIZER, STATE]
    found = (path for name in (SHARES, OPTIMIZER_SHARES) for path in sorted((folder / name).glob("*")))
    return [*(path.relative_to(folder).as_posix() for path in found), STATE]


def is_sharded(step: Path) -> bool:
    """Whether the weights of a step lie in shares."""
    return (step / SHARES).is_dir()


def save_step(
    run: str | Path,
    step: int,
    model: Transformer | Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, object],
    kept: int = KEPT,
) -> Path:
    """Write RUN/checkpoints/step-N, then remove all that is newer, and all but the `kept` newest.

    It has its name only once it is whole and on the disk; a full disk or an interrupt leaves those before it as they
    were, and nothing else. A whole step with this number is left alone: the same step is the same bytes.
    """
    path = Path(run) / CHECKPOINTS / f"step-{step}"
    if path.exists() and damage(path) is None:
        return path
    if path.exists():
        remove(path)
    with folder_beside(path) as part:
        write_step(part, model, optimizer, state)
    forget(Path(run), path, kept)
    return path


def forget(run: Path, written: Path, kept: int = KEPT) -> None:
    """Remove all steps but the one that was just written and those before it, `kept` in all: what is newer was passed
    over as damaged, or the run would not stand here."""
    steps = steps_in(run)
    at = steps.index(written)
    for step in [*steps[:at], *steps[at + kept :]]:
        try:
            remove(step)
        except OSError as error:
            raise unwritable(step, error) from None


# Reading


def damage(step: Path) -> str | None:
    """What is wrong with a step's folder; None: it is whole."""
    try:
        lines = (step / SUMS).read_text(encoding="utf-8").splitlines()
        said = {name: total for total, _, name in (line.partition("  ") for line in lines)}
        files = files_in(step)
        if is_sharded(step) and (missing := sorted(said.keys() - set(files))):
            return f"{missing[0]} is missing"
        for name in files:
            if said.get(name) != sha256_of(step / name):
                return f"{name} is not what {SUMS} says"
    except (OSError, ValueError) as error:
        return f"{getattr(error, 'filename', None) or step / SUMS}: {getattr(error, 'strerror', None) or error}"
    return None


def newest(path: str | Path) -> Path:
    """The newest whole step of a run, or the step itself that `path` is.

    Steps that are not whole are passed over, each with a line on stderr. Refused where none is left.
    """
    path = Path(path)
    if is_step(path):
        if wrong := damage(path):
            raise refuse(str(path), wrong, "this step is not whole", "give the run's folder: it has others")
        return path
    steps = steps_in(path)
    for step in steps:
        if (wrong := damage(step)) is None:
            return step
        print(f"plainformer: {step} is not whole ({wrong}); looking for one before it", file=sys.stderr)
    rule = "none of its checkpoints is whole" if steps else "there is no checkpoint in it"
    raise refuse(str(path), f"{len(steps)} steps", rule, "start the run again in another folder")


def read_json(path: Path) -> Any:
    """What a JSON file holds; refused by name where it can't be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse(str(path), error.strerror, "this file cannot be read", "a run keeps it") from None
    except ValueError as error:
        raise refuse(str(path), str(error), "this file is damaged: it is no JSON") from None
    except RecursionError:
        raise refuse(str(path), "nested too deep", "this file is damaged: no run keeps such a one") from None


def state_of(step: Path) -> dict[str, Any]:
    """What `save_step` was given as `state`."""
    state: dict[str, Any] = read_json(step / STATE)
    return state


def spec_of(path: str | Path) -> Spec:
    """The spec of a run, or of the run that a step stands in."""
    file = run_of(path) / "spec.json"
    spec = from_json(read_json(file), str(file))
    if not isinstance(spec, Spec):
        raise refuse(str(file), type(spec).__name__, "must hold a whole spec")
    return spec


def tokenizer_file(path: str | Path) -> Path:
    """Where the tokenizer of a run lies, of the run that a step stands in, or of a published folder."""
    if os.path.isfile(path):
        return Path(path) if str(path).endswith(".gguf") else Path(path).parent / "tokenizer.json"
    return (run_of(path) if is_run(path) or is_step(path) else Path(path)) / "tokenizer.json"


def tokenizer_of(path: str | Path) -> Tokenizer:
    """The tokenizer of a run, or of the run that a step stands in."""
    return Tokenizer.load(tokenizer_file(path))


def tensors_in(file: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a safetensors file, one at a time; a damaged file is refused by its name."""
    try:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a dict
                yield name, opened.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise refuse(str(file), str(error), "this file is damaged or absent") from None


def load_run(path: str | Path, dtype: torch.dtype | None = None) -> Transformer:
    """The model in a run's newest whole step, or in the step that `path` is.

    dtype: of the weights; None: as stored. Names and shapes are held against the spec.
    """
    step = newest(path)
    model = Transformer(spec_of(step), initial=None)
    fill(model, step, dtype)
    return model


@torch.no_grad()
def fill(model: Transformer, step: Path, dtype: torch.dtype | None = None) -> None:
    """Read a step's weights into a model, one at a time. Of a model of shares each process takes its own."""
    mine, found = model.state_dict(), set[str]()
    sharded = is_sharded(step)
    for name, shape, its_dtype, tensor in sized(step):
        if name not in mine or mine[name].shape != shape:
            want = tuple(mine[name].shape) if name in mine else "absent"
            raise refuse(f"{step / MODEL}: {name}", tuple(shape), f"must be {want}, by spec.json")
        if not found:
            mine = model.to(dtype or its_dtype).state_dict()
        if tensor is not None:
            mine[name].copy_(share_of(tensor, mine[name]))
        found.add(name)
    if missing := sorted(mine.keys() - found):
        raise refuse(f"{step / MODEL}: {missing[0]}", None, "this weight is missing")
    if sharded:
        read_shards(step / SHARES, mine)


def sized(step: Path) -> Iterator[tuple[str, torch.Size, torch.dtype, Tensor | None]]:
    """A step's weights: name, whole size, dtype, and itself where it does not lie in shares."""
    if is_sharded(step):
        yield from ((name, *entry, None) for name, entry in sizes_in(step / SHARES).items())
    else:
        yield from ((name, tensor.shape, tensor.dtype, tensor) for name, tensor in tensors_in(step / MODEL))


def optimizer_of(step: Path, weights: Mapping[str, Tensor] | None = None) -> Iterable[tuple[str, Tensor]]:
    """The optimiser's tensors by name, as `save_step` was given them, one at a time.

    weights: by name; each tensor that is as large as its weight is then cut as that is.
    """
    if not is_sharded(step):
        for full, tensor in tensors_in(step / OPTIMIZER):
            like = (weights or {}).get(full.partition(".")[2])
            yield full, tensor if like is None else share_of(tensor, like)
        return
    into = {}
    for full, (size, dtype) in sizes_in(step / OPTIMIZER_SHARES).items():
        like = (weights or {}).get(full.partition(".")[2])
        alike = like is not None and like.shape == size
        into[full] = (
            torch.zeros_like(like, dtype=dtype) if alike and like is not None else torch.empty(size, dtype=dtype)
        )
    read_shards(step / OPTIMIZER_SHARES, into)
    yield from into.items()


def share_of(full: Tensor, like: Tensor) -> Tensor:
    """This process's share of a tensor that it holds in full, cut as `like` is; the tensor itself where that is not."""
    if not hasattr(like, "full_tensor") or full.shape != like.shape:
        return full
    from torch.distributed.tensor import distribute_tensor

    cut = cast(Any, like)
    return distribute_tensor(full.to(cut.device), cut.device_mesh, cut.placements, src_data_rank=None)
