"""Attention, plain and latent, and how positions turn queries and keys."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, log

from plainformer import mixers
from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.source.page import WIDTH, Page, size
from plainformer.source.parts import code, method
from plainformer.tree import walk

FLAT = ".transpose(1, 2).flatten(-2)"


def heads(page: Page) -> str:
    text = '''(x: Tensor, width: int) -> Tensor:
    """(B, T, heads * width) as (B, heads, T, width): each head by itself."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)
'''
    return page.a_function("heads", text)


def looks_back(page: Page) -> str:
    text = '''(n_tokens: int, device: torch.device) -> Tensor:
    """(T, S): how many tokens back each key is."""
    positions_T = torch.arange(n_tokens, device=device)
    return positions_T[:, None] - positions_T
'''
    return page.a_function("ago", text)


def more_input(part: object, page: Page) -> list[str]:
    """What a part of a layer is given beside the stream."""
    if isinstance(part, s.Attention):
        if part.cross:
            return ["memory_BSD"]
        if page.stack is not None and page.stack.relative:
            return ["bias_1HTS"]
    return []


def scale_of(scores: s.Scores, d_head: int, d_text: str) -> str:
    power = " ** " if d_text.startswith("(") else "**"
    return f"{d_text}{power}-0.5" if scores.scale == d_head**-0.5 else size("scale", scores.scale)


# --- rotary positions -------------------------------------------------------------------------------------------------


def turns(page: Page, rotary: s.Rotary, d_head: int, d_text: str) -> str:
    """The function that makes cos and sin of all angles."""
    n = d_text if rotary.n_dims == d_head else size("n_turned", rotary.n_dims)
    theta, scaling = size("theta", rotary.theta), rotary.scaling
    lines = [f"turn = {theta} ** (-pairs / {n})"]
    doc = "Rotary positions: cos and sin of each pair's angle, position * theta^(-2i / width): (T, 1, pairs)."
    by = 1.0
    if scaling is not None:
        told = dict(scaling.settings)
        if scaling.kind == "other":
            raise refuse("Rotary.scaling", scaling.kind, "no rule writes this scaling's code yet", "it can be sized")
        first, factor = plainly(told.get("original_max_position_embeddings")), plainly(told.get("factor"))
        if scaling.kind == "linear":
            lines.append(f"turn = turn / {factor}  # slowed, for longer texts")
        elif scaling.kind == "longrope":
            lines += slowed(rotary.n_dims // 2, told)
            lines.append(f"turn = turn / torch.tensor(long if n_tokens > {first} else short, dtype=torch.float64)")
        elif scaling.kind == "dynamic":
            lines = [
                f"grown = {factor} * max(n_tokens, {first}) / {first} - ({factor} - 1)  # slower for longer texts",
                f"turn = ({theta} * grown ** ({n} / ({n} - 2))) ** (-pairs / {n})",
            ]
        else:
            lines += kept(rotary, scaling)
            lines.append(f"turn = torch.lerp(turn / {factor}, turn, kept.clamp(0, 1))")
        by = stretch(scaling)
    by_text = "" if by == 1 else f".mul({by!r})"
    body = "\n    ".join(
        (
            f"pairs = torch.arange(0, {n}, 2, dtype=torch.float64)",
            *lines,
            "angle = torch.arange(n_tokens, device=like.device)[:, None, None] * turn.to(like.device)",
            f"return angle.cos(){by_text}.to(like.dtype), angle.sin(){by_text}.to(like.dtype)",
        )
    )
    return page.a_function(
        "turns", f'(n_tokens: int, like: Tensor) -> tuple[Tensor, Tensor]:\n    """{doc}"""\n    {body}\n'
    )


def slowed(n_pairs: int, told: dict[str, float]) -> list[str]:
    """LongRoPE's two lists: how much each pair is slowed in short and in long texts."""
    lines = []
    for name in ("short", "long"):
        listed = [str(plainly(told[f"{name}_factor.{i}"])) for i in range(n_pairs)]
        text = f"{name} = [{', '.join(listed)}]"
        lines += [text] if len(text) < WIDTH - 4 else [f"{name} = [", *(f"    {one}," for one in listed), "]"]
    return lines


def plainly(number: object) -> object:
    """A whole number without its point."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def kept(rotary: s.Rotary, scaling: s.Scaling) -> list[str]:
    """Lines that say which share of its speed each pair keeps."""
    told, n = dict(scaling.settings), rotary.n_dims
    first = told["original_max_position_embeddings"]
    if scaling.kind == "llama3":
        low, high = told["low_freq_factor"], told["high_freq_factor"]
        return [
            f"# Pairs that turn more than {high:g} times in {first:g} tokens keep their speed; below {low:g} slowed.",
            f"kept = ({plainly(first)} * turn / (2 * math.pi) - {plainly(low)}) / ({plainly(high)} - {plainly(low)})",
        ]
    low, high = (
        n * log(first / (told[beta] * 2 * 3.141592653589793)) / (2 * log(rotary.theta))
        for beta in ("beta_fast", "beta_slow")
    )
    if told.get("truncate", 1.0):
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, n - 1)
    return [
        f"# YaRN: pairs that turn often in {first:g} tokens keep their speed, those that turn seldom are slowed.",
        f"kept = 1 - (pairs / 2 - {low!r}) / {max(high - low, 0.001)!r}",
    ]


def stretch(scaling: s.Scaling) -> float:
    """What turned queries and keys are multiplied by: 1 without YaRN and LongRoPE."""
    told = dict(scaling.settings)
    if scaling.kind not in ("yarn", "longrope"):
        return 1.0
    if "attention_factor" in told:
        return told["attention_factor"]
    wide, by, over = 0.1 * max(0.0, log(told["factor"])), told.get("mscale"), told.get("mscale_all_dim")
    return (1 + wide * by) / (1 + wide * over) if by and over else 1 + wide


def rotate(page: Page, rotary: s.Rotary, d_head: int) -> str:
    """The function that turns the pairs of queries or keys."""
    whole, n = rotary.n_dims == d_head, size("n_turned", rotary.n_dims)
    turned = "x" if whole else "turned"
    lines = ["x = x.transpose(1, 2)  # (B, T, heads, width), as it lies in memory"]
    lines += [] if whole else [f"turned, rest = x[..., :{n}], x[..., {n}:]"]
    apart = f"{turned}[..., 0::2], {turned}[..., 1::2]" if rotary.interleaved else f"{turned}.chunk(2, -1)"
    lines += [f"a, b = {apart}", "a, b = a * cos - b * sin, b * cos + a * sin"]
    both = "torch.stack((a, b), -1).flatten(-2)" if rotary.interleaved else "torch.cat((a, b), -1)"
    last = both if whole else f"torch.cat(({both if rotary.interleaved else 'a, b'}, rest), -1)"
    lines.append(f"return {last}.transpose(1, 2)")
    pairs = "next to each other" if rotary.interleaved else "half the width apart"
    what = "Turn each pair of numbers" if whole else "Turn each pair of the first numbers"
    body = "\n    ".join(lines)
    text = f'(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:\n    """{what} ({pairs}) by its angle."""\n    {body}\n'
    return page.a_function("rotate", text)


# --- who sees whom ----------------------------------------------------------------------------------------------------


def slopes(page: Page, n_heads: int) -> str:
    """The function of ALiBi's additions to scores."""
    power = 1 << (n_heads.bit_length() - 1)
    exponents = f"[-8 * i / {power} for i in range(1, {power + 1})]"
    if n_heads > power:
        exponents += f" + [-4 * i / {power} for i in range(1, {2 * (n_heads - power)}, 2)]"
    text = f'''(n_tokens: int, like: Tensor) -> Tensor:
    """(1, H, T, S): the further back a key, the lower its score; each head has a slope of its own (ALiBi)."""
    exponents = {exponents}
    slopes_H = torch.tensor(exponents, dtype=torch.float64).exp2().to(like.device)
    return -(slopes_H[:, None, None] * {looks_back(page)}(n_tokens, like.device).abs()).to(like.dtype)[None]
'''
    return page.a_function("alibi", text)


def causal(page: Page) -> bool:
    return page.stack is None or page.stack.causal


def windows(part: s.Attention, page: Page) -> set[int | None]:
    """The windows of the stack's attentions that are like this one but for that."""
    every = {one for _, one in walk(page.stack, seen=set()) if isinstance(one, s.Attention)}
    return {one.window for one in every if replace(one, window=part.window) == part}


def bias_of(part: s.Attention, page: Page) -> str:
    """What positions add to scores, as code; empty without."""
    if part.scores.alibi:
        return f"{slopes(page, part.n_heads)}(x_BTD.shape[1], q_BHTK)"
    return "bias_1HTS" if page.stack is not None and page.stack.relative else ""


def hidden(part: s.Attention, page: Page) -> list[str]:
    """Lines that give hidden_TS, the keys that a query may not see; none where it may see all."""
    told = page.stack is not None and page.stack.relative is not None and not part.scores.alibi
    later, found, window = causal(page) and not told, windows(part, page), size("window", part.window)
    if not later and found == {None}:
        return []
    lines = [f"ago_TS = {looks_back(page)}(x_BTD.shape[1], x_BTD.device)"]
    far = f"ago_TS >= {window}" if causal(page) else f"ago_TS.abs() >= {window}"
    if None not in found:
        return [*lines, f"hidden_TS = (ago_TS < 0) | ({far})" if later else f"hidden_TS = {far}"]
    lines.append(f"hidden_TS = {'ago_TS < 0' if later else 'torch.zeros_like(ago_TS, dtype=torch.bool)'}")
    if found == {None}:
        return lines
    return [*lines, f"if {window} is not None:", f"    hidden_TS = hidden_TS | ({far})"]


def fused(part: s.Attention, page: Page) -> tuple[list[str], str]:
    """By torch's own kernel: lines before it, and what it is told of who sees whom."""
    bias, found, window = bias_of(part, page), windows(part, page), size("window", part.window)
    if bias:
        if lines := hidden(part, page):
            return [*lines, f"mask_1HTS = {bias}.masked_fill(hidden_TS, -torch.inf)"], ", attn_mask=mask_1HTS"
        return [], f", attn_mask={bias}"
    if found == {None}:
        return [], f", is_causal={size('causal', causal(page))}"
    seen = f"(ago_TS >= 0) & (ago_TS < {window})" if causal(page) else f"ago_TS.abs() < {window}"
    narrow = f"x_BTD.shape[1] > {window}"
    lines = [
        "mask_TS = None  # where the window holds all tokens, none is needed",
        f"if {window} is not None and {narrow}:" if None in found else f"if {narrow}:",
        f"    ago_TS = {looks_back(page)}(x_BTD.shape[1], x_BTD.device)",
        f"    mask_TS = {seen}",
    ]
    return lines, ", attn_mask=mask_TS" + (", is_causal=mask_TS is None" if causal(page) else "")


def plain(part: s.Attention, page: Page, n_repeats: str, scale: str) -> list[str]:
    """Step by step, where torch's kernel lacks the rule: lines that give y_BHTK."""
    scores, grouped, lines = part.scores, part.n_kv_heads != part.n_heads, []
    if grouped:
        lines.append(f"k_BHSK, v_BHSK = (y.repeat_interleave({n_repeats}, 1) for y in (k_BGSK, v_BGSK))")
    lines.append(f"scores_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2) * {scale}")
    if scores.softcap is not None:
        cap = size("softcap", scores.softcap)
        lines.append(f"scores_BHTS = {cap} * (scores_BHTS / {cap}).tanh()  # never beyond the cap")
    if not part.cross:
        if bias := bias_of(part, page):
            lines.append(f"scores_BHTS = scores_BHTS + {bias}")
        if more := hidden(part, page):
            lines += [*more, "scores_BHTS = scores_BHTS.masked_fill(hidden_TS, -torch.inf)"]
    if not scores.sinks:
        return [*lines, "y_BHTK = scores_BHTS.softmax(-1) @ v_BHSK"]
    return [
        *lines,
        "sinks_BHT1 = self.sinks[:, None, None].expand(*scores_BHTS.shape[:-1], 1)",
        "weights_BHTS = torch.cat((scores_BHTS, sinks_BHT1), -1).softmax(-1)[..., :-1]",
        "y_BHTK = weights_BHTS @ v_BHSK",
    ]


# --- the rules --------------------------------------------------------------------------------------------------------


@code.register(s.Attention)
def _(part: s.Attention, page: Page, d_model: str = "", *_: str) -> str:
    if part.v is None:
        raise refuse("Attention.v", None, "no rule writes this code yet", "it can be sized")
    grouped, rotary = part.n_kv_heads != part.n_heads, part.scores.rotary
    n_heads, d_head = size("n_heads", part.n_heads), size("d_head", part.d_head)
    n_kv_heads = size("n_kv_heads", part.n_kv_heads) if grouped else n_heads
    k, v = ("k_BGSK", "v_BGSK") if grouped else ("k_BHSK", "v_BHSK")
    init = f"self.sinks = nn.Parameter(torch.zeros({n_heads}))\n" if part.scores.sinks else ""
    init += f"self.q = {code(part.q, page, d_model, f'{n_heads} * {d_head}')}\n"
    for name in ("k", "v"):
        init += f"self.{name} = {code(getattr(part, name), page, d_model, f'{n_kv_heads} * {d_head}')}\n"
    init += f"self.out = {code(part.out, page, f'{n_heads} * {d_head}', d_model)}\n"
    split, source = heads(page), "memory_BSD" if part.cross else "x_BTD"
    lines = [
        f"q_BHTK = {split}(self.q(x_BTD), {d_head})",
        f"{k}, {v} = {split}(self.k({source}), {d_head}), {split}(self.v({source}), {d_head})",
    ]
    if rotary and not part.cross:
        lines.append(f"cos, sin = {turns(page, rotary, part.d_head, d_head)}(x_BTD.shape[1], q_BHTK)")
        turn = rotate(page, rotary, part.d_head)
        lines.append(f"q_BHTK, {k} = {turn}(q_BHTK, cos, sin), {turn}({k}, cos, sin)")
    scale = scale_of(part.scores, part.d_head, d_head)
    if part.scores.softcap is None and not part.scores.sinks:
        before, told = ([], "") if part.cross else fused(part, page)
        told += f", scale={scale}" + (", enable_gqa=True" if grouped else "")
        lines += [*before, f"y_BHTK = F.scaled_dot_product_attention(q_BHTK, {k}, {v}{told})"]
    else:
        lines += plain(part, page, f"{n_heads} // {n_kv_heads}", scale)
    more = "".join(f", {name}: Tensor" for name in more_input(part, page))
    forward = method(f"forward(self, x_BTD: Tensor{more}) -> Tensor", *lines, f"self.out(y_BHTK{FLAT})")
    return page.a_class("CrossAttention" if part.cross else "Attention", about(part, page), init, forward)


def about(part: s.Attention, page: Page) -> str:
    """What this attention does, in words."""
    whom = "itself and those before it" if causal(page) else "all tokens"
    if page.spec.encoder and page.spec.decoder:
        whom = "what the encoder said" if part.cross else "the tokens that it may see"  # one class for both stacks
    lines = [f"Each token asks (q) {whom} (k), and takes what is held there (v): softmax(scale q k^T) v."]
    if part.n_kv_heads != part.n_heads:
        lines.append("Several queries share a key and a value.")
    if part.scores.sinks:
        lines.append("A learned score in each head takes weight and gives no value.")
    return lines[0] if len(lines) == 1 else f"{lines[0]}\n\n{' '.join(lines[1:])}\n"


@code.register(mixers.LatentAttention)
def _(part: mixers.LatentAttention, page: Page, d_model: str = "", *_: str) -> str:
    for name in ("softcap", "sinks", "alibi"):
        if value := getattr(part.scores, name):
            raise refuse(f"LatentAttention.scores.{name}", value, "no rule writes this code yet", "it can be sized")
    n_heads, rotary = size("n_heads", part.n_heads), part.scores.rotary
    nope, rope = size("d_nope", part.d_nope), size("d_rope", part.d_rope)
    value, latent = size("d_value", part.d_value), size("d_latent", part.kv_norm.width)
    init = f"self.q = {code(part.q, page, d_model, f'{n_heads} * ({nope} + {rope})')}\n"
    init += f"self.kv_down = {code(part.kv_down, page, d_model, f'{latent} + {rope}')}\n"
    init += f"self.kv_norm = {code(part.kv_norm, page, latent)}\n"
    init += f"self.kv_up = {code(part.kv_up, page, latent, f'{n_heads} * ({nope} + {value})')}\n"
    init += f"self.out = {code(part.out, page, f'{n_heads} * {value}', d_model)}\n"
    split = heads(page)
    lines = [
        f"q_BHTP, q_BHTR = {split}(self.q(x_BTD), {nope} + {rope}).split(({nope}, {rope}), -1)",
        f"latent_BSL, k_BSR = self.kv_down(x_BTD).split(({latent}, {rope}), -1)",
        f"kv_BHSM = {split}(self.kv_up(self.kv_norm(latent_BSL)), {nope} + {value})",
        f"k_BHSP, v_BHSJ = kv_BHSM.split(({nope}, {value}), -1)",
        "k_B1SR = k_BSR[:, None]  # one for all heads",
    ]
    if rotary:
        lines.append(f"cos, sin = {turns(page, rotary, part.d_rope, rope)}(x_BTD.shape[1], q_BHTR)")
        turn = rotate(page, rotary, part.d_rope)
        lines.append(f"q_BHTR, k_B1SR = {turn}(q_BHTR, cos, sin), {turn}(k_B1SR, cos, sin)")
    scale = scale_of(part.scores, part.d_nope + part.d_rope, f"({nope} + {rope})")
    told = f"is_causal={size('causal', causal(page))}, scale={scale}"
    lines += [
        "q_BHTK = torch.cat((q_BHTP, q_BHTR), -1)",
        f"k_BHSK = torch.cat((k_BHSP, k_B1SR.expand(-1, {n_heads}, -1, -1)), -1)",
        f"y_BHTJ = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSJ, {told})",
    ]
    doc = "Attention whose keys and values are made from one small latent row a token: it alone would be cached."
    forward = method("forward(self, x_BTD: Tensor) -> Tensor", *lines, f"self.out(y_BHTJ{FLAT})")
    return page.a_class("LatentAttention", doc, init, forward)
