"""Which of their weights plays which role: by name and shape, in the layouts that people use.

Known: nanoGPT and minGPT (c_attn, c_proj, c_fc), one module a head (heads.0.key), torch.nn (in_proj_weight, linear1),
Hugging Face (q_proj, Conv1D), gamma and beta, plain classes (W_q, b1, ln1_g). Our matrices act as x @ w.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plainformer.check.binding import Sizes, short
from plainformer.check.steps import Array

ROLE_NAMES = {
    "qkv": "cattn qkv inproj inprojweight inprojbias toqkv querykeyvalue wqkv qkvproj attnqkv cattnw cattnb",
    "q": "q query wq qproj toq wquery queryproj linearq qlinear queries bq qw qb queryweight",
    "k": "k key wk kproj tok wkey keyproj lineark klinear keys bk kw kb keyweight",
    "v": "v value wv vproj tov wvalue valueproj linearv vlinear values bv vw vb valueweight",
    "o": "o out cproj proj outproj wo dense output toout outlinear projection wout oproj fcout bo ow ob",
}
FED_NAMES = {
    "up": "up cfc fc1 linear1 lin1 w1 upproj fc dense1 expand fcin wi wup layer1 win l1 b1 bup densehto4h hidden",
    "down": "down cproj fc2 linear2 lin2 w2 downproj proj dense2 fcout wo wdown layer2 wout l2 b2 bdown dense4htoh out",
    "gate": "gate gateproj wgate w3 bgate linearv",
}
HEAD_NAMES = {"lmhead", "head", "outhead", "output", "fcout", "unembed", "outputprojection", "headw", "wout", "lm"}
HEAD_NAMES |= {"proj", "outputlayer", "logits", "decoder"}
ATTENTION = re.compile(r"attn|attention|mha|^sa$|^att$|heads?$")
FED = re.compile(r"mlp|ffn|ffwd|feedforward|^ff$|^net$")
NORM = re.compile(r"norm|^ln|^rms")
GAINS, BIASES = re.compile(r"(weight|gamma|scale|gain|g|w|alpha|a2?)$"), re.compile(r"(bias|beta|shift|b2?)$")


@dataclass(frozen=True)
class Placed:
    """One array of theirs: the roles whose columns it holds, side by side, and whether it stands transposed."""

    path: str
    shape: tuple[int, ...]
    roles: tuple[str, ...]
    transposed: bool
    part: tuple[int, int] | None = None  # it holds this one of so many equal parts of its role (one module a head)

    def from_roles(self, w: Mapping[str, Array]) -> Array:
        columns = [w[role] for role in self.roles]
        if self.part is not None:
            columns = [np.split(one, self.part[1], -1)[self.part[0]] for one in columns]
        whole = np.concatenate(columns, -1)
        return np.ascontiguousarray(whole.T if self.transposed else whole)

    def to_roles(self, whole: Array) -> dict[str, Array]:
        """Of their array the roles' columns; of a module a head, its part alone."""
        columns = whole.T if self.transposed else whole
        return dict(zip(self.roles, np.split(columns, len(self.roles), -1), strict=True))


class Unplaced(Exception):
    """Arrays of theirs whose role is not known."""


def role_in(token: str, names: Mapping[str, str]) -> str | None:
    return next((role for role, known in names.items() if token in known.split()), None)


def numbers_in(path: Sequence[str]) -> list[int]:
    return [int(one) for one in path if one.isdigit()]


def named_role(path: list[str], ndim: int, in_block: bool, fed: bool | None, three: bool) -> str | None:
    """`attn.q`, `mlp.up` and their like for one array, from the words on its path, the last ones first."""
    words = [short(one) for one in path if short(one) not in ("weight", "bias", "w", "b") and not one.isdigit()]
    inside_ff = fed if fed is not None else any(FED.search(word) for word in words)
    inside_attention = fed is False or any(ATTENTION.search(word) for word in words)
    for word in reversed(words):
        if not inside_ff and (role := role_in(word, ROLE_NAMES)):
            return f"attn.{role}"
        if not inside_attention and (role := role_in(word, FED_NAMES)):
            if three and role in ("up", "gate") and re.search(r"w[13]$", word):
                role = {"w1": "gate", "w3": "up"}[word[-2:]]  # Llama's names
            return f"mlp.{role}"
    return None


def place(topic: str, parameters: Sequence[Mapping[str, Any]], sizes: Sizes) -> list[Placed]:
    """A role for every array; raises Unplaced with the paths that have none."""
    found: list[Placed] = []
    norms: dict[str, list[str]] = {}
    lost: list[str] = []
    paths = [p["path"] for p in parameters]
    three = any(short(path.split(".")[-2] if "." in path else path).endswith("w3") for path in paths)
    in_order = [p for p in parameters if len(p["shape"]) == 2 and p["shape"][0] != p["shape"][1]]
    n_heads_apart = max((int(m[1]) + 1 for path in paths if (m := re.search(r"heads\.(\d+)\.", path))), default=0)
    fed = [path for path in paths if topic == "feed_forward" or any(FED.search(short(one)) for one in path.split("."))]
    sequence = sorted({numbers_in(path.split("."))[-1] for path in fed if numbers_in(path.split("."))})
    for p in parameters:
        path, shape = p["path"].split("."), tuple(p["shape"])
        block, inner = "", path
        if topic == "gpt" and numbers_in(path):
            at = next(i for i, one in enumerate(path) if one.isdigit())
            block, inner = f"block{path[at]}.", path[at + 1 :]
        role = role_of(topic, path, inner, block, shape, norms, three, sequence, sizes)
        if role is None:
            lost.append(p["path"])
            continue
        part = None
        if n_heads_apart and (number := re.search(r"heads\.(\d+)\.", p["path"])):
            part = (int(number[1]), n_heads_apart)
        leaf = role.rsplit(".", 1)[-1]
        roles = tuple(role.replace("qkv", one) for one in "qkv") if "qkv" in role else (role,)
        transposed = len(shape) == 2 and leaf == "w" and is_transposed(p["of"], role, shape, sizes.width, in_order)
        found.append(Placed(p["path"], shape, roles, transposed, part))
    once = [role for one in found if one.part is None for role in one.roles]
    lost += [one.path for one in found if one.part is None and any(once.count(role) > 1 for role in one.roles)]
    if lost:
        raise Unplaced(", ".join(lost))
    return found


def role_of(
    topic: str,
    path: list[str],
    inner: list[str],
    block: str,
    shape: tuple[int, ...],
    norms: dict[str, list[str]],
    three: bool,
    sequence: list[int],
    sizes: Sizes,
) -> str | None:
    leaf = short(path[-1])
    kind = "gain" if GAINS.search(leaf) and not BIASES.search(leaf) else "bias"
    if topic in ("layer_norm", "rms_norm"):
        return kind if len(shape) == 1 else None
    if topic == "gpt" and not block:
        return outer_role(path, shape, kind, sizes)
    norm_at = next((i for i, one in enumerate(inner) if NORM.search(short(one))), None)
    if len(shape) == 1 and norm_at is not None and topic in ("block", "gpt"):
        name = (
            re.sub(r"(gain|bias|_?[gb]|weight)$", "", inner[norm_at]) if norm_at == len(inner) - 1 else inner[norm_at]
        )
        order = norms.setdefault(block, [])
        if name not in order:
            order.append(name)
        digit = re.search(r"([12])", name)
        number = int(digit[1]) if digit else order.index(name) + 1
        return f"{block}ln{number}.{kind}" if number in (1, 2) else None
    fed = {"multi_head_attention": False, "feed_forward": True}.get(topic)
    role = named_role(inner, len(shape), bool(block), fed, three)
    numbers = numbers_in(inner)
    if role is None and numbers and len(sequence) == 2 and (fed or any(FED.search(short(one)) for one in inner)):
        role = f"mlp.{('up', 'down')[sequence.index(numbers[-1])]}"
    if role is None:
        return None
    short_role = role.split(".")[1] if fed is not None else role
    return f"{block}{short_role}.{'w' if len(shape) == 2 else 'b'}"


def outer_role(path: list[str], shape: tuple[int, ...], kind: str, sizes: Sizes) -> str | None:
    words = {short(one) for one in path}
    if len(shape) == 1:
        return "head.b" if shape[0] == sizes.vocab else f"ln_f.{kind}"
    head = bool(words & HEAD_NAMES)
    if sizes.vocab in shape:
        return "head.w" if head or shape[1] == sizes.vocab else "wte"
    return "wpe" if sizes.context in shape else None


def is_transposed(of: str, role: str, shape: tuple[int, ...], width: int, others: Sequence[Mapping[str, Any]]) -> bool:
    """Whether it stands as (out, in): torch's Linear does; where nothing says so, the shapes that are not square do."""
    if of == "torch.Linear" or of.startswith(("torch.MultiheadAttention", "torch.NonDynamically")):
        return True
    if of.endswith("Conv1D"):
        return False
    leaf = role.split(".")[-2]
    if shape[0] != shape[1]:
        return shape[1] == width if leaf in ("up", "gate", "q", "k", "v", "qkv", "head") else shape[0] == width
    ups = [p["shape"] for p in others if re.search("up|fc|linear1|w1|W1", p["path"]) and width in p["shape"]]
    return bool(ups) and ups[0][1] == width


def shapes_of(placed: Sequence[Placed]) -> dict[str, tuple[int, ...]]:
    """Each role's shape as ours have it."""
    shapes: dict[str, tuple[int, ...]] = {}
    for one in placed:
        shape = one.shape[::-1] if one.transposed else one.shape
        n = shape[-1] // len(one.roles) * (one.part[1] if one.part else 1)
        for role in one.roles:
            shapes[role] = (*shape[:-1], n)
    return shapes
