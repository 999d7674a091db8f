"""The whole file: what it is, its letters, what it imports, the model, and how to try it."""

from __future__ import annotations

import re
from textwrap import fill

from plainformer import spec as s
from plainformer.ledger import Ledger
from plainformer.source.page import WIDTH, Page, size
from plainformer.source.parts import code
from plainformer.source.whole import layer as layer

LETTERS = {
    "B": "rows of the batch",
    "T": "tokens of a row",
    "S": "tokens that are looked at",
    "D": "numbers of a token in the stream",
    "H": "heads",
    "G": "heads of keys and values",
    "K": "numbers of a query or key",
    "N": "tokens of all rows",
    "E": "experts",
    "C": "choices of all tokens",
    "V": "tokens of the vocabulary",
    "J": "numbers of a value",
    "L": "numbers of a latent",
    "M": "numbers made of a latent for each head",
    "P": "numbers that are not turned",
    "R": "numbers that are turned",
    "F": "numbers inside a feed-forward",
}
SMALL = 3_000_000_000  # parameters of a model that is made in full to be tried without its weights

READ = '''def read(path: str) -> dict[str, Tensor]:
    """Weights by name, from a safetensors file or from what torch.save wrote."""
    if not path.endswith(".safetensors"):
        return torch.load(path, weights_only=True)
    kinds = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        numbers = bytearray(file.read())
    weights = {}
    for name, told in header.items():
        if name != "__metadata__":
            (begin, end), kind = told["data_offsets"], kinds[told["dtype"]]
            weights[name] = torch.frombuffer(numbers[begin:end], dtype=kind).view(told["shape"])
    return weights
'''

GENERATE = '''@torch.no_grad()
def generate(model: Transformer, {given}: Tensor, n_new: int, temperature: float = 1.0) -> Tensor:
    """The rows with n_new tokens drawn after each. Every step reads the whole row again: plain rather than fast."""
    for _ in range(n_new):
        logits_BV = model({seen})[:, -1] / temperature
        next_B1 = logits_BV.softmax(-1).multinomial(1)
        tokens_BT = torch.cat((tokens_BT, next_B1), 1)
    return tokens_BT
'''


def write(spec: s.Spec, name: str = "model", published: str | None = None) -> str:
    """The model as one Python file that imports torch alone.

    name: what the file calls it. published: the `model_type` of the configs under which such models are published.
    Raises PlainformerError by the name of a part whose code no rule writes yet.
    """
    page, ledger = Page(spec), Ledger.of(spec)
    code(spec, page)
    body = page.whole(main(spec, ledger.total))
    letters = dict.fromkeys("".join(re.findall(r"\b[a-z]\w*_([A-Z1]{1,5})\b", body)))
    return head(spec, ledger, name, published, set(letters)) + "\n" + body


def head(spec: s.Spec, ledger: Ledger, name: str, published: str | None, letters: set[str]) -> str:
    called = re.sub(r"[^\w.\- ]", "_", name)
    met = f", of which a token meets {ledger.active:,}" if ledger.active != ledger.total else ""
    first = f"{called}: a transformer of {ledger.total:,} parameters{met}, in one file that needs PyTorch alone."
    tells = "A name's last letters are its shape: "
    tells += "; ".join(f"{letter} {words}" for letter, words in LETTERS.items() if letter in letters) + "."
    order = "The whole is said at the end, by `Transformer`; what it is made of stands above it."
    use = "Weights go by the names of a plainformer checkpoint: `python THIS_FILE.py model.safetensors` loads them."
    paragraphs = [first, order, use]
    if published:
        said = f"A folder published with model_type {published} has other names for them. To have them under ours:"
        paragraphs.append(said)
    text = [fill(each, WIDTH) for each in paragraphs]
    text[0] = '"""' + fill(first, WIDTH - 3)
    if published:
        text.append(
            '    import plainformer, torch\n    torch.save(plainformer.load("FOLDER").state_dict(), "weights.pt")'
        )
    text.append(fill(tells, WIDTH))
    imports = "import json\nimport sys\n"
    imports = ("import json\nimport math\nimport sys\n") if has_math(spec) else imports
    imports += "\nimport torch\nimport torch.nn.functional as F\nfrom torch import Tensor, nn\n"
    return "\n\n".join(text) + '\n"""\n\n' + imports


def has_math(spec: s.Spec) -> bool:
    from plainformer.tree import walk

    kinds = [part for _, part in walk(spec, seen=set())]
    return any(isinstance(p, s.RelativeBias) or (isinstance(p, s.Scaling) and p.kind == "llama3") for p in kinds)


def main(spec: s.Spec, total: int) -> str:
    both = spec.encoder is not None and spec.decoder is not None
    tokens = min(spec.vocab_size, 4)
    row = f"torch.tensor([{list(range(tokens))}])"
    parts = [READ]
    if spec.decoder and spec.head and spec.head.pool == "no" and spec.decoder.causal:
        last = size("max_seq_len", spec.max_seq_len)
        given = "source_BS: Tensor, tokens_BT" if both else "tokens_BT"
        seen = f"source_BS, tokens_BT[:, -{last}:]" if both else f"tokens_BT[:, -{last}:]"
        parts.append(GENERATE.format(given=given, seen=seen))
    call = f"model({row}, {row})" if both else f"model({row})"
    lines = ["path = sys.argv[1] if len(sys.argv) > 1 else None"]
    if total <= SMALL:
        lines.append('with torch.device("meta" if path else "cpu"):  # shapes alone where the numbers come from a file')
    else:
        lines.append('with torch.device("meta"):  # shapes alone: the numbers come from a file')
    lines += [
        "    model = Transformer().eval()",
        'print(f"{sum(p.numel() for p in model.parameters()):,} parameters")',
    ]
    tried = [
        "with torch.no_grad():",
        f"    print({call}[0, -1, :8])" + ("" if spec.head else "  # the stream at the last token"),
    ]
    load = "    model.load_state_dict(read(path), assign=True)"
    if total <= SMALL:
        lines += ["if path:", load, *tried]
    else:
        lines += ["if path:", load, *(f"    {line}" for line in tried)]
    parts.append('if __name__ == "__main__":\n' + "".join(f"    {line}\n" for line in lines))
    return "\n\n".join(parts)
