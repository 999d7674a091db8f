"""The small parts: projections, norms, tables, feed-forwards. Each rule gives what makes the part, and sees to it that
its class is on the page.

Where torch has a module that does the very same under the same names, that one is made.
"""

from __future__ import annotations

from functools import singledispatch

from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.source.page import Page, size

ACTS = {
    "relu": "F.relu({})",
    "relu_squared": "F.relu({}).square()",
    "silu": "F.silu({})",
    "gelu": "F.gelu({})",
    "gelu_tanh": 'F.gelu({}, approximate="tanh")',
    "tanh": "torch.tanh({})",
}


@singledispatch
def code(part: object, page: Page, *widths: str) -> str:
    """What makes the part. `widths`: what the one that holds it calls its inputs, and its outputs."""
    raise refuse("part", type(part).__name__, "no rule writes this part's code yet", "it can be sized")


def weights(part: s.Linear, n_in: str, n_out: str, stacked: str = "") -> str:
    """Lines that make a linear's own weights: (outputs, inputs), one for each expert where they are stacked."""
    lines = f"self.weight = nn.Parameter(0.02 * torch.randn({stacked}{n_out}, {n_in}))\n"
    return lines + rest_of_weights(part, n_in, n_out, stacked)


def rest_of_weights(part: s.Linear, n_in: str, n_out: str, stacked: str = "") -> str:
    lines = f"self.bias = nn.Parameter(torch.zeros({stacked}{n_out}))\n" if part.bias else ""
    if part.lora:
        rank = size("rank", part.lora.rank)
        lines += f"self.lora_a = nn.Parameter(0.02 * torch.randn({stacked}{rank}, {n_in}))\n"
        lines += f"self.lora_b = nn.Parameter(torch.zeros({stacked}{n_out}, {rank}))\n"
    return lines


def applied(part: s.Linear, x: str, weight: str = "self.weight", index: str = "") -> list[str]:
    """Lines of which the last gives x W^T + b, with the low-rank correction where there is one."""
    bias = f", self.bias{index}" if part.bias else ""
    plain = f"F.linear({x}, {weight}{index}{bias})"
    if not part.lora:
        return [plain]
    low = f"F.linear(F.linear({x}, self.lora_a{index}), self.lora_b{index})"
    return [f"y = {plain}", f"y + {low} * ({size('alpha', part.lora.alpha)} / {size('rank', part.lora.rank)})"]


def method(head: str, *lines: str) -> str:
    """A method; the last line is what it returns."""
    *before, last = lines
    return f"def {head}:\n" + "".join(f"    {line}\n" for line in (*before, f"return {last}"))


@code.register(s.Linear)
def _(part: s.Linear, page: Page, n_in: str = "", n_out: str = "") -> str:
    if not part.lora:
        return f"nn.Linear({n_in}, {n_out}{'' if part.bias else ', bias=False'})"
    inside, outside = size("n_in", part.n_in), size("n_out", part.n_out)
    forward = method("forward(self, x: Tensor) -> Tensor", *applied(part, "x"))
    doc = "A projection with a low-rank correction: x W^T + x A^T B^T * alpha / rank."
    return page.a_class("LoraLinear", doc, weights(part, inside, outside), forward, n_in=n_in, n_out=n_out)


@code.register(s.Norm)
def _(part: s.Norm, page: Page, width: str = "", *_: str) -> str:
    layer, eps = part.kind == "layer", size("eps", part.eps)
    if not part.plus_one or not part.gain:
        held = "" if part.gain else ", elementwise_affine=False"
        if not layer and not part.bias:
            return f"nn.RMSNorm({width}, eps={eps}{held})"
        if layer and part.bias == part.gain:
            return f"nn.LayerNorm({width}, eps={eps}{held})"
        if layer and part.gain:
            return f"nn.LayerNorm({width}, eps={eps}, bias=False)"
    inside = size("width", part.width)
    begins = "zeros" if part.plus_one else "ones"
    init = f"self.weight = nn.Parameter(torch.{begins}({inside}))\n" if part.gain else ""
    init += f"self.bias = nn.Parameter(torch.zeros({inside}))\n" if part.bias else ""
    gain = ("self.weight + 1" if part.plus_one else "self.weight") if part.gain else "None"
    if layer:
        bias = "self.bias" if part.bias else "None"
        forward = method("forward(self, x: Tensor) -> Tensor", f"F.layer_norm(x, ({inside},), {gain}, {bias}, {eps})")
        said = "Each token's numbers less their mean, over their deviation"
    else:
        plain = f"F.rms_norm(x, ({inside},), {gain}, {eps})"
        forward = method("forward(self, x: Tensor) -> Tensor", plain + (" + self.bias" if part.bias else ""))
        said = "Each token's numbers over the root of their mean square"
    more = "; the gain is stored less 1" if part.plus_one and part.gain else ""
    return page.a_class("LayerNorm" if layer else "RMSNorm", f"{said}{more}.", init, forward)


@code.register(s.NormedLinear)
def _(part: s.NormedLinear, page: Page, into: str = "", out: str = "") -> str:
    head, n_out = size("d_head", part.norm.width), size("n_out", part.linear.n_out)
    n_in, width = into or size("n_in", part.linear.n_in), head if head in out else size("width", part.norm.width)
    init = weights(part.linear, n_in, n_out) + f"self.norm = {code(part.norm, page, width)}\n"
    *before, last = applied(part.linear, "x")
    lines = [*before, f"y = {last}", f"self.norm(y.unflatten(-1, (-1, {width}))).flatten(-2)"]
    doc = "A projection, then a norm over each run of its outputs: queries and keys keep to one length."
    forward = method("forward(self, x: Tensor) -> Tensor", *lines)
    return page.a_class("NormedLinear", doc, init, forward, n_out=out, width=out)


@code.register(s.Bottleneck)
def _(part: s.Bottleneck, page: Page, n_in: str = "", n_out: str = "") -> str:
    narrow = size("d_query", part.down.n_out)
    init = f"self.down = {code(part.down, page, n_in, narrow)}\n"
    init += f"self.norm = {code(part.norm, page, narrow)}\n"
    init += f"self.up = {code(part.up, page, narrow, n_out)}\n"
    forward = method("forward(self, x: Tensor) -> Tensor", "self.up(self.norm(self.down(x)))")
    return page.a_class("Bottleneck", "A projection in two steps with a norm between.", init, forward)


@code.register(s.Table)
def _(part: s.Table, page: Page, n_rows: str = "", width: str = "") -> str:
    return f"nn.Embedding({n_rows or size('n_rows', part.n_rows)}, {width or size('width', part.width)})"


@code.register(s.Sinusoid)
def _(part: s.Sinusoid, page: Page, *_: str) -> str:
    width = size("d_model", part.width)
    doc = "Fixed positions: sines and cosines of position / 10000^(2i / width), side by side."
    doc = doc if part.layout == "pairs" else "Fixed positions: sines of falling frequency, then their cosines."
    rows, n = "positions_T", f"({width} - 2)" if part.layout == "tensor2tensor" else width
    rows = f"({rows} + {part.offset})" if part.offset else rows
    both = "torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)"
    forward = method(
        "forward(self, positions_T: Tensor) -> Tensor",
        f"pairs = torch.arange(0, {width}, 2, dtype=torch.float64, device=positions_T.device)",
        f"angle = {rows}[:, None] / 10000.0 ** (pairs / {n})",
        both if part.layout == "pairs" else "torch.cat((angle.sin(), angle.cos()), -1)",
    )
    return page.a_class("Sinusoids", doc, "", forward)


@code.register(s.RelativeBias)
def _(part: s.RelativeBias, page: Page, *_: str) -> str:
    n, causal = part.n_buckets, page.stack is None or page.stack.causal
    buckets, heads, farthest = (
        size("n_buckets", n),
        size("n_heads", part.n_heads),
        size("max_distance", part.max_distance),
    )
    whole = buckets if causal else f"{buckets} // 2"
    lines = [
        "positions_T = torch.arange(n_tokens, device=self.weight.device)",
        "ago_TS = positions_T[:, None] - positions_T  # how many tokens back each key is",
        f"n, far_TS = {whole}, {'ago_TS.clamp(min=0)' if causal else 'ago_TS.abs()'}",
        "exact = n // 2  # so many distances have a bucket of their own; the rest share by their logarithm",
        f"share_TS = (far_TS.clamp(min=exact).double() / exact).log() / math.log({farthest} / exact)",
        "shared_TS = (exact + (share_TS * (n - exact)).long()).clamp(max=n - 1)",
        "bucket_TS = torch.where(far_TS < exact, far_TS, shared_TS)" + ("" if causal else " + n * (ago_TS < 0)"),
        "bias_1HTS = self.weight[bucket_TS].permute(2, 0, 1)[None]",
    ]
    last = "bias_1HTS.masked_fill(ago_TS < 0, -torch.inf)  # later tokens are out of sight"
    if not causal:
        last = lines.pop().removeprefix("bias_1HTS = ") + "  # (1, H, T, S)"
    doc = "What each head adds to its scores by how far apart two tokens are" + ("; later tokens are hidden" * causal)
    init = f"self.weight = nn.Parameter(0.02 * torch.randn({buckets}, {heads}))\n"
    base = "CausalBias" if causal else "RelativeBias"
    return page.a_class(base, f"{doc}.", init, method("forward(self, n_tokens: int) -> Tensor", *lines, last))


@code.register(s.FeedForward)
def _(part: s.FeedForward, page: Page, d_model: str = "", stacked: str = "", width: str = "d_ff") -> str:
    """`stacked`: how many alike stand in each weight; a call then says which is meant."""
    d_ff, init, said = size(width, part.up.n_out), "", {}
    x, hidden = ("x", "hidden") if stacked or page.flat else ("x_BTD", "hidden_BTF")
    e = ", e" if stacked else ""
    for name in ("gate", "up", "down"):
        if linear := getattr(part, name):
            into, out = (d_ff, d_model) if name == "down" else (d_model, d_ff)
            made = stacked_linear(linear, page, stacked, into, out) if stacked else code(linear, page, into, out)
            init += f"self.{name} = {made}\n"
            said[name] = f"self.{name}({x}{e})"
    if part.activation == "swiglu_clamped" and part.gate:
        formula = "down(g * sigmoid(1.702 g) * (up(x) + 1)), g = gate(x), neither beyond 7"
        lines = [
            f"gate, up = {said['gate']}.clamp(max=7.0), {said['up']}.clamp(-7.0, 7.0)",
            f"{hidden} = gate * (1.702 * gate).sigmoid() * (up + 1)",
        ]
    else:
        act, name = ACTS[part.activation], part.activation.removesuffix("_tanh").replace("_squared", "^2")
        formula = f"down({name}(gate(x)) * up(x))" if part.gate else f"down({name}(up(x)))"
        text = f"{act.format(said['gate'])} * {said['up']}" if part.gate else act.format(said["up"])
        lines = [f"{hidden} = {text}"]
    base, begin = (
        ("StackedFeedForward", "All experts; e says which:") if stacked else ("FeedForward", "Each token by itself:")
    )
    head = f"forward(self, {x}: Tensor{', e: int' if stacked else ''}) -> Tensor"
    return page.a_class(base, f"{begin} {formula}.", init, method(head, *lines, f"self.down({hidden}{e})"))


def stacked_linear(part: s.Linear, page: Page, n_experts: str, into: str, out: str) -> str:
    """One projection for each expert, in one weight."""
    n_in, n_out = size("n_in", part.n_in), size("n_out", part.n_out)
    forward = method("forward(self, x: Tensor, e: int) -> Tensor", *applied(part, "x", index="[e]"))
    doc = "A projection for each expert, their weights stacked in one; e says whose."
    return page.a_class(
        "StackedLinear", doc, weights(part, n_in, n_out, f"{n_experts}, "), forward, n_in=into, n_out=out
    )
