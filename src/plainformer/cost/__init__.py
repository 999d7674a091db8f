"""What a model costs: bytes, operations, time and money, from a spec and what is asked of it."""

from __future__ import annotations

from plainformer.cost import rules
from plainformer.cost.cache import Cache
from plainformer.cost.flops import Work, flops
from plainformer.faults import Fault, PlainformerError
from plainformer.ledger import Ledger
from plainformer.records import dataclass
from plainformer.spec import Attention, FeedForward, Spec, Tower
from plainformer.tree import walk


@dataclass(frozen=True)
class Cost:
    """The account of one spec for `batch_size` sequences of `seq_len` tokens. Bytes are bytes, operations FLOPs."""

    spec: Spec
    batch_size: int
    seq_len: int
    source_len: int  # of what the encoder reads; 0 where there is nothing to cross to
    dtype: str
    kv_dtype: str
    ledger: Ledger
    cache: Cache
    forward_flops: int  # one pass over the whole batch, exact (see cost.flops)

    @classmethod
    def of(
        cls,
        spec: Spec,
        batch_size: int = 1,
        seq_len: int | None = None,
        source_len: int | None = None,
        dtype: str = "bfloat16",
        kv_dtype: str | None = None,
    ) -> Cost:
        """seq_len: spec.max_seq_len where not given; source_len: seq_len; kv_dtype: dtype, or bfloat16 where dtype is
        narrower. Refuses lengths below 1 and dtypes that it does not know."""
        length = spec.max_seq_len if seq_len is None else seq_len
        crossing = spec.decoder is not None and spec.encoder is not None
        source = (length if source_len is None else source_len) if crossing else 0
        faults = [
            Fault(name, value, "must be at least 1")
            for name, value in (("batch_size", batch_size), ("seq_len", length), ("source_len", source))
            if value < 1 and not (name == "source_len" and not crossing)
        ]
        if faults:
            raise PlainformerError(faults)
        kept = kv_dtype or (dtype if rules.bits(dtype) >= 16 else "bfloat16")
        rules.bits(kept, "kv_dtype")
        work = Work(batch_size, n_new=length, n_all=length, n_source=source)
        return cls(spec, batch_size, length, source, dtype, kept, Ledger.of(spec), Cache.of(spec), flops(spec, work))

    # --- memory -------------------------------------------------------------------------------------------------------

    def weights_bytes(self, dtype: str | None = None) -> int:
        """Every tensor once, in one dtype: the cost's own where none is named."""
        return rules.n_bytes(self.ledger.total, dtype or self.dtype)

    @property
    def cache_bytes_per_token(self) -> int:
        """Growth with each token of one sequence, while it is inside every window."""
        return rules.n_bytes(self.cache.per_token, self.kv_dtype)

    @property
    def cache_bytes(self) -> int:
        """Keys and values (or latents) of the whole batch at seq_len, windows held to."""
        return rules.n_bytes(self.batch_size * self.cache.numbers(self.seq_len), self.kv_dtype)

    @property
    def cache_bytes_as_expanded(self) -> int:
        """The same if every latent were kept as the keys and values it stands for."""
        return rules.n_bytes(self.batch_size * self.cache.numbers_expanded(self.seq_len), self.kv_dtype)

    @property
    def cross_cache_bytes(self) -> int:
        """Keys and values of what the encoder said, for the whole batch."""
        return rules.n_bytes(self.batch_size * self.source_len * self.cache.per_source_token, self.kv_dtype)

    @property
    def state_bytes(self) -> int:
        """Fixed states of recurrences, for the whole batch, whatever the context."""
        return rules.n_bytes(self.batch_size * self.cache.fixed, self.kv_dtype)

    @property
    def optimizer_bytes(self) -> int:
        """Weights, gradients and AdamW's state, before activations: 16 bytes a parameter, mixed or pure float32."""
        return rules.ADAMW * self.ledger.total

    def activation_bytes(self, recompute: bool = False) -> int | None:
        """By rules.activation_bytes; None where the blocks are not of the GPT type that it speaks of."""
        d, layers = self.spec.d_model, self.spec.main.layers
        parts = [part for _, part in walk(self.spec.main)]
        attentions = [part for part in parts if isinstance(part, Attention)]
        seconds = [part for part in parts if isinstance(part, FeedForward)]
        plain = all(part.n_heads == part.n_kv_heads and part.n_heads * part.d_head == d for part in attentions)
        wide = all(part.gate is None and part.up.n_out == 4 * d for part in seconds)
        alike = len({part.n_heads for part in attentions}) == 1
        if not (plain and wide and alike and len(attentions) == len(seconds) == len(layers)):
            return None
        return rules.activation_bytes(
            batch_size=self.batch_size,
            seq_len=self.seq_len,
            d_model=d,
            n_heads=attentions[0].n_heads,
            n_layers=len(self.spec.main.passes or layers),
            recompute=recompute,
        )

    # --- operations ---------------------------------------------------------------------------------------------------

    @property
    def forward_flops_per_token(self) -> int:
        """The mean over the positions of one sequence; rounded up where it is no whole number."""
        return -(-self.forward_flops // (self.batch_size * self.seq_len))

    @property
    def rule_2n(self) -> int:
        """The rule of thumb beside it: 2 operations for each parameter that a token meets."""
        return rules.inference_flops_per_token(self.ledger.active)

    @property
    def training_flops_per_token(self) -> int:
        """Forward, and twice that backward: every product has two gradients."""
        return 3 * self.forward_flops_per_token

    def training_flops(self, tokens: float) -> float:
        return 3 * self.forward_flops / (self.batch_size * self.seq_len) * tokens

    def training_flops_6nd(self, tokens: float) -> float:
        return rules.training_flops(self.ledger.active, tokens)

    @property
    def model_flops_per_token(self) -> int:
        """PaLM's training operations a token, for utilisation; decoders and encoders of plain attention only."""
        wide = [part.n_heads * part.d_head for _, part in walk(self.spec.main) if isinstance(part, Attention)]
        counted = self.ledger.active - self.ledger.by_kind["position"]
        return rules.model_flops_per_token(counted, 1, 1, sum(wide), self.seq_len)

    @property
    def notes(self) -> tuple[str, ...]:
        """What these figures leave out or take for granted, in sentences."""
        return tuple(_notes(self))


def _notes(cost: Cost) -> list[str]:
    said = []
    spec, cache = cost.spec, cost.cache
    if any(row.met[0] != row.met[1] for row in cost.ledger.rows):
        said.append("operations, 2N and 6ND are of the experts that a token meets; bytes are of all experts")
    if cache.windows:
        sizes = " and ".join(f"{window:,}" for window in cache.windows)
        beyond = rules.n_bytes(cache.per_token_beyond_windows, cost.kv_dtype)
        said.append(
            f"some layers keep a window of {sizes} tokens: past it the cache grows by {beyond:,} bytes a token; "
            "operations are of the plain form, which scores every pair"
        )
    if cache.numbers(1) != cache.numbers_expanded(1):
        said.append("the cache is of latents; engines that expand them to keys and values keep bytes_as_expanded")
    if cache.per_source_token:
        each = rules.n_bytes(cache.per_source_token, cost.kv_dtype)
        said.append(f"cross-attention keeps {each:,} bytes more for each token of the source")
    if cache.fixed:
        said.append(f"recurrent layers keep {cost.state_bytes:,} bytes more, whatever the context")
        said.append("operations of recurrent layers are those of a step at a time; chunked kernels do more")
    if any(isinstance(one, Tower) for one in spec.towers):
        said.append("operations and cache are of text alone: pictures are not in them")
    if cost.seq_len > spec.max_seq_len:
        said.append(f"the context asked for ({cost.seq_len:,}) is longer than the model's own ({spec.max_seq_len:,})")
    return said
