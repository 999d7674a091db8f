"""Layers, stacks, the token table, the head and the whole model."""

from __future__ import annotations

from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.source.attention import more_input
from plainformer.source.page import Page, size
from plainformer.source.parts import ACTS, applied, code, method, rest_of_weights, weights
from plainformer.tree import walk


def extras(stack: s.Stack, page: Page) -> list[str]:
    """What every layer of a stack is given beside the stream."""
    parts = [branch.part for layer in stack.layers for residual in layer for branch in residual.branches]
    return list(dict.fromkeys(name for part in parts for name in more_input(part, page)))


def layer(residuals: tuple[s.Residual, ...], page: Page, base: str, given: list[str]) -> str:
    """The class of a layer: its residuals one after another."""
    init, lines, d_model = "", [], size("d_model", page.spec.d_model)
    for residual in residuals:
        held = [name for name, part in residual.parts() if part is not None]
        for name, part in residual.parts():
            if part is not None:
                init += f"self.{name} = {code(part, page, d_model)}\n"
        lines += said(residual, held, page)
    mixture = any(isinstance(branch.part, s.Experts) for residual in residuals for branch in residual.branches)
    names = [
        branch.name.replace("feed_forward", "feed-forward").replace("_", " ")
        for residual in residuals
        for branch in residual.branches
    ]
    doc = f"{', then '.join(names)}, each added to the stream.".capitalize()
    if any(len(residual.branches) > 1 for residual in residuals):
        doc = f"{' and '.join(names)} side by side, added to the stream.".capitalize()
    if not all(residual.add for residual in residuals):
        doc = f"{', then '.join(names)}.".capitalize()
    more = "".join(f", {name}: Tensor" for name in given)
    forward = method(f"forward(self, x_BTD: Tensor{more}) -> Tensor", *lines, "x_BTD")
    return page.a_class(f"Mixture{base}" if mixture and is_mixed(page) else base, doc, init, forward)


def is_mixed(page: Page) -> bool:
    """Whether some layers have experts and some have none."""
    stacks = [stack for stack in (page.spec.encoder, page.spec.decoder) if stack]
    found = {any(isinstance(part, s.Experts) for _, part in walk(one)) for stack in stacks for one in stack.layers}
    return len(found) == 2


def said(residual: s.Residual, held: list[str], page: Page) -> list[str]:
    """Lines that take x_BTD through a residual."""

    def through(name: str, text: str) -> str:
        return f"self.{name}({text})" if name in held else text

    first, lines, read = residual.branches[0].name, [], "x_BTD"
    shared = through(f"{first}_norm_shared", read)
    if shared != read and len(residual.branches) > 1:
        lines.append(f"read_BTD = {shared}")
        read = "read_BTD"
    else:
        read = shared
    added = []
    for branch in residual.branches:
        more = "".join(f", {name}" for name in more_input(branch.part, page))
        call = f"self.{branch.name}({through(f'{branch.name}_norm', read)}{more})"
        added.append(through(f"{branch.name}_norm_out", call))
    if len(added) > 1:
        names = [f"{branch.name}_BTD" for branch in residual.branches]
        lines += [f"{name} = {text}" for name, text in zip(names, added, strict=True)]
        together = f"({' + '.join(names)})" if residual.add else " + ".join(names)
    else:
        (together,) = added
    if f"{first}_norm_together" in held:
        together = f"self.{first}_norm_together({together.strip('()') if len(added) > 1 else together})"
    whole = f"x_BTD + {together}" if residual.add else together
    line = f"x_BTD = {through(f'{first}_norm_sum', whole)}"
    if len(line) > 100 and len(added) == 1:
        y = f"{first}_BTD"
        lines.append(f"{y} = {added[0]}")
        together = through(f"{first}_norm_together", y)
        line = f"x_BTD = {through(f'{first}_norm_sum', f'x_BTD + {together}' if residual.add else together)}"
    return [*lines, line]


@code.register(s.Stack)
def _(part: s.Stack, page: Page, *_: str) -> str:
    page.stack = part
    both = page.spec.encoder is not None and page.spec.decoder is not None
    which = "encoder" if part is page.spec.encoder else "decoder"
    given, init, lines = extras(part, page), "", []
    d_model = size("d_model", page.spec.d_model)
    if part.positions:
        init += f"self.positions = {positions(part.positions, page)}\n"
        lines.append("positions_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)")
        lines.append(f"x_BTD = x_BTD + self.positions({place(part.positions)}).to(x_BTD.dtype)")
        if isinstance(part.positions, s.Table):
            lines[-1] = lines[-1].removesuffix(".to(x_BTD.dtype)")
    if part.relative:
        init += f"self.relative = {code(part.relative, page)}\n"
        if "bias_1HTS" in given:
            lines.append("bias_1HTS = self.relative(x_BTD.shape[1]).to(x_BTD.dtype)  # the same for all layers")
    if part.norm_first:
        init += f"self.norm_first = {code(part.norm_first, page, d_model)}\n"
        lines.append("x_BTD = self.norm_first(x_BTD)")
    base = f"{which.capitalize()}Layer" if both else "Layer"
    made = ",".join(layer(one, page, base, given)[1:-1] for one in part.layers)
    count = f"n_{which}_layers" if both else "n_layers"
    init += f"self.layers = ⟦{count}:{made}⟧\n"
    more = "".join(f", {name}" for name in given)
    if part.passes:
        lines += [
            f"for i in {passes(part.passes)}:  # whose weights each pass uses",
            f"    x_BTD = self.layers[i](x_BTD{more})",
        ]
    else:
        lines += ["for layer in self.layers:", f"    x_BTD = layer(x_BTD{more})"]
    last = "x_BTD"
    if part.norm_last:
        init += f"self.norm_last = {code(part.norm_last, page, d_model)}\n"
        last = "self.norm_last(x_BTD)"
    memory = ", memory_BSD: Tensor" if "memory_BSD" in given else ""
    doc = "The layers one after another" + (
        ", each with its own weights." if not part.passes else ", some more than once."
    )
    page.stack = None
    return page.a_class(
        which.capitalize(), doc, init, method(f"forward(self, x_BTD: Tensor{memory}) -> Tensor", *lines, last)
    )


def passes(order: tuple[int, ...]) -> str:
    if len(set(order)) == 1:
        return f"({order[0]},) * {len(order)}" if len(order) > 1 else f"({order[0]},)"
    return f"({', '.join(map(str, order))})"


def positions(part: object, page: Page) -> str:
    if isinstance(part, s.Table):
        rows = f" + {part.offset}" if part.offset else ""
        known = part.n_rows - part.offset == page.spec.max_seq_len
        n_rows = f"{size('max_seq_len', page.spec.max_seq_len)}{rows}" if known else size("n_positions", part.n_rows)
        return code(part, page, n_rows, size("d_model" if part.width == page.spec.d_model else "d_embed", part.width))
    return code(part, page)


def place(part: object) -> str:
    offset = part.offset if isinstance(part, s.Table) else 0
    return f"positions_T + {offset}" if offset else "positions_T"


def is_plain(part: s.Tokens) -> bool:
    """Whether torch's own table says it all."""
    return part.scale == 1 and not (part.types or part.positions or part.norm or part.project)


@code.register(s.Tokens)
def _(part: s.Tokens, page: Page, *_: str) -> str:
    rows = size("vocab_size", part.table.n_rows)
    width = size("d_model" if part.table.width == page.spec.d_model else "d_embed", part.table.width)
    if is_plain(part):
        return f"nn.Embedding({rows}, {width})"
    init, lines = "", ["x_BTD = F.embedding(tokens_BT, self.weight)"]
    if part.scale != 1:
        root = part.scale == page.spec.d_model**0.5
        scale = f"{size('d_model', page.spec.d_model)}**0.5" if root else size("embedding_scale", part.scale)
        lines.append(f"x_BTD = x_BTD * {scale}")
    if part.types:
        init += f"self.types = {code(part.types, page, '', width)}\n"
        lines.append("x_BTD = x_BTD + self.types(types_BT)")
    if part.positions:
        init += f"self.positions = {positions(part.positions, page)}\n"
        at = place(part.positions).replace("positions_T", "torch.arange(tokens_BT.shape[1], device=tokens_BT.device)")
        lines.append(f"x_BTD = x_BTD + self.positions({at})")
    for name in ("norm", "project"):
        if inner := getattr(part, name):
            widths = (width, size("d_model", page.spec.d_model)) if name == "project" else (width,)
            init += f"self.{name} = {code(inner, page, *widths)}\n"
            lines.append(f"x_BTD = self.{name}(x_BTD)")
    init = f"self.weight = nn.Parameter(0.02 * torch.randn({rows}, {width}))\n" + init
    types = ", types_BT: Tensor" if part.types else ""
    doc = "From token numbers to the stream: a row of the table for each"
    doc += ", and what its place and kind add." if part.types or part.positions else "."
    return page.a_class(
        "Embedding", doc, init, method(f"forward(self, tokens_BT: Tensor{types}) -> Tensor", *lines, "x_BTD")
    )


def is_bare(part: s.Head) -> bool:
    """Whether the head is one linear map and no more."""
    linear = part.linear
    return not (part.transform or part.activation or part.norm or part.softcap or linear.lora) and (
        part.scale == 1 and part.pool == "no" and not (part.tied and linear.bias)
    )


@code.register(s.Head)
def _(part: s.Head, page: Page, *_: str) -> str:
    d_model, linear = size("d_model", page.spec.d_model), part.linear
    width = d_model if linear.n_in == page.spec.d_model else size("d_embed", linear.n_in)
    n_out = size("vocab_size" if linear.n_out == page.spec.vocab_size else "n_out", linear.n_out)
    if is_bare(part):
        return "" if part.tied else code(linear, page, width, n_out)
    init, lines = (rest_of_weights if part.tied else weights)(linear, width, n_out), []
    if part.pool == "first":
        lines.append("x_BTD = x_BTD[:, :1]  # the first token's answer stands for the row")
    if part.pool == "mean":
        lines.append("x_BTD = x_BTD.sum(1, keepdim=True) / x_BTD.shape[1]  # the row's mean")
    if part.transform:
        init += f"self.transform = {code(part.transform, page, d_model, width)}\n"
        lines.append("x_BTD = self.transform(x_BTD)")
    if part.activation:
        lines.append(f"x_BTD = {ACTS[part.activation].format('x_BTD')}")
    if part.norm:
        init += f"self.norm = {code(part.norm, page, width)}\n"
        lines.append("x_BTD = self.norm(x_BTD)")
    if part.scale != 1:
        root = part.scale == page.spec.d_model**-0.5
        lines.append(f"x_BTD = x_BTD * {d_model + '**-0.5' if root else size('head_scale', part.scale)}")
    *before, last = applied(linear, "x_BTD", "table_VD" if part.tied else "self.weight")
    lines += before
    if part.softcap:
        cap = size("logits_cap", part.softcap)
        lines.append(f"logits_BTV = {last}")
        last = f"{cap} * (logits_BTV / {cap}).tanh()  # never beyond the cap"
    doc = "From the stream to a score for every token" + ("; its matrix is the token table." if part.tied else ".")
    table = ", table_VD: Tensor" if part.tied else ""
    return page.a_class("Head", doc, init, method(f"forward(self, x_BTD: Tensor{table}) -> Tensor", *lines, last))


@code.register(s.Spec)
def _(part: s.Spec, page: Page, *_: str) -> str:
    if part.towers:
        raise refuse("towers", len(part.towers), "no rule writes the code of towers yet", "they can be sized")
    both, types = part.encoder is not None and part.decoder is not None, part.embedding.types is not None
    init = f"self.embedding = {code(part.embedding, page)}\n"
    for name in ("encoder", "decoder"):
        if stack := getattr(part, name):
            init += f"self.{name} = {code(stack, page)}\n"
    head = code(part.head, page) if part.head else ""
    init += f"self.head = {head}\n" if head else ""
    main = "decoder" if part.decoder else "encoder"
    lines = []

    def embedded(tokens: str) -> str:
        zeros = f", torch.zeros_like({tokens})" if types and both else ", types_BT" if types else ""
        return f"self.embedding({tokens}{zeros})"

    if both:
        lines.append(f"memory_BSD = self.encoder({embedded('source_BS')})")
    hears = both and any(isinstance(one, s.Attention) and one.cross for _, one in walk(part.decoder, seen=set()))
    if types and not both:
        lines += ["if types_BT is None:", "    types_BT = torch.zeros_like(tokens_BT)  # all of the first sentence"]
    lines.append(f"x_BTD = self.{main}({embedded('tokens_BT')}{', memory_BSD' if hears else ''})")
    if part.head is None:
        last = "x_BTD"
    elif part.head.tied:
        last = "self.head(x_BTD, self.embedding.weight)" if head else "F.linear(x_BTD, self.embedding.weight)"
        last += "  # the token table once more" if not head else ""
    else:
        last = "self.head(x_BTD)"
    more = "source_BS: Tensor, tokens_BT: Tensor" if both else "tokens_BT: Tensor"
    more += ", types_BT: Tensor | None = None" if types and not both else ""
    doc = "The whole model: from token numbers to "
    doc += "the stream after the last layer." if part.head is None else "a score for every token at every place."
    return page.a_class("Transformer", doc, init, method(f"forward(self, {more}) -> Tensor", *lines, last))
