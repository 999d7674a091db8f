"""llama-3-8b: a transformer of 8,030,261,248 parameters, in one file that needs PyTorch alone.

The whole is said at the end, by `Transformer`; what it is made of stands above it.

Weights go by the names of a plainformer checkpoint: `python THIS_FILE.py model.safetensors` loads them.

A folder published with model_type llama has other names for them. To have them under ours:

    import plainformer, torch
    torch.save(plainformer.load("FOLDER").state_dict(), "weights.pt")

A name's last letters are its shape: B rows of the batch; T tokens of a row; S tokens that are looked at; D numbers of a
token in the stream; H heads; G heads of keys and values; K numbers of a query or key; V tokens of the vocabulary; F
numbers inside a feed-forward.
"""

import json
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB_SIZE = 128256  # tokens of the vocabulary
MAX_SEQ_LEN = 8192  # tokens of the longest text
D_MODEL = 4096  # numbers for each token in the stream from layer to layer
N_LAYERS = 32
N_HEADS = 32  # heads of an attention, each with queries of its own
N_KV_HEADS = 8  # of keys and values; each serves n_heads / n_kv_heads heads
D_HEAD = 128  # numbers of a query or a key
THETA = 500000.0  # base of the rotary angles
D_FF = 14336  # numbers of a token inside a feed-forward
EPS = 1e-05  # keeps norms from dividing by zero


def heads(x: Tensor, width: int) -> Tensor:
    """(B, T, heads * width) as (B, heads, T, width): each head by itself."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def turns(n_tokens: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Rotary positions: cos and sin of each pair's angle, position * theta^(-2i / width): (T, 1, pairs)."""
    pairs = torch.arange(0, D_HEAD, 2, dtype=torch.float64)
    turn = THETA ** (-pairs / D_HEAD)
    angle = torch.arange(n_tokens, device=like.device)[:, None, None] * turn.to(like.device)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of numbers (half the width apart) by its angle."""
    x = x.transpose(1, 2)  # (B, T, heads, width), as it lies in memory
    a, b = x.chunk(2, -1)
    a, b = a * cos - b * sin, b * cos + a * sin
    return torch.cat((a, b), -1).transpose(1, 2)


class Attention(nn.Module):
    """Each token asks (q) itself and those before it (k), and takes what is held there (v): softmax(scale q k^T) v.

    Several queries share a key and a value.
    """

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(D_MODEL, N_HEADS * D_HEAD, bias=False)
        self.k = nn.Linear(D_MODEL, N_KV_HEADS * D_HEAD, bias=False)
        self.v = nn.Linear(D_MODEL, N_KV_HEADS * D_HEAD, bias=False)
        self.out = nn.Linear(N_HEADS * D_HEAD, D_MODEL, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BHTK = heads(self.q(x_BTD), D_HEAD)
        k_BGSK, v_BGSK = heads(self.k(x_BTD), D_HEAD), heads(self.v(x_BTD), D_HEAD)
        cos, sin = turns(x_BTD.shape[1], q_BHTK)
        q_BHTK, k_BGSK = rotate(q_BHTK, cos, sin), rotate(k_BGSK, cos, sin)
        y_BHTK = F.scaled_dot_product_attention(
            q_BHTK, k_BGSK, v_BGSK, is_causal=True, scale=D_HEAD**-0.5, enable_gqa=True
        )
        return self.out(y_BHTK.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """Each token by itself: down(silu(gate(x)) * up(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D_MODEL, D_FF, bias=False)
        self.up = nn.Linear(D_MODEL, D_FF, bias=False)
        self.down = nn.Linear(D_FF, D_MODEL, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        hidden_BTF = F.silu(self.gate(x_BTD)) * self.up(x_BTD)
        return self.down(hidden_BTF)


class Layer(nn.Module):
    """Attention, then feed-forward, each added to the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(D_MODEL, eps=EPS)
        self.attention = Attention()
        self.feed_forward_norm = nn.RMSNorm(D_MODEL, eps=EPS)
        self.feed_forward = FeedForward()

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        x_BTD = x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD))
        return x_BTD


class Decoder(nn.Module):
    """The layers one after another, each with its own weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(N_LAYERS))
        self.norm_last = nn.RMSNorm(D_MODEL, eps=EPS)

    def forward(self, x_BTD: Tensor) -> Tensor:
        for layer in self.layers:
            x_BTD = layer(x_BTD)
        return self.norm_last(x_BTD)


class Transformer(nn.Module):
    """The whole model: from token numbers to a score for every token at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, D_MODEL)
        self.decoder = Decoder()
        self.head = nn.Linear(D_MODEL, VOCAB_SIZE, bias=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.decoder(self.embedding(tokens_BT))
        return self.head(x_BTD)


def read(path: str) -> dict[str, Tensor]:
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


@torch.no_grad()
def generate(model: Transformer, tokens_BT: Tensor, n_new: int, temperature: float = 1.0) -> Tensor:
    """The rows with n_new tokens drawn after each. Every step reads the whole row again: plain rather than fast."""
    for _ in range(n_new):
        logits_BV = model(tokens_BT[:, -MAX_SEQ_LEN:])[:, -1] / temperature
        next_B1 = logits_BV.softmax(-1).multinomial(1)
        tokens_BT = torch.cat((tokens_BT, next_B1), 1)
    return tokens_BT


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else None
    with torch.device("meta"):  # shapes alone: the numbers come from a file
        model = Transformer().eval()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    if path:
        model.load_state_dict(read(path), assign=True)
        with torch.no_grad():
            print(model(torch.tensor([[0, 1, 2, 3]]))[0, -1, :8])
