"""LoRA adapters in one batch: each token's products with the low-rank matrices of its own adapter.

    y[t] = W x[t] + B[a(t)] (A[a(t)] x[t])         a(t): the adapter of token t, or none

W is read once for the whole batch, whatever the adapters; only the small matrices differ. So customers
with adapters of their own share a forward pass, which a model per customer could not (S-LoRA,
arXiv:2311.03285). `reference_product` is that formula. The engine computes it in two other ways:

    gathered   a few tokens: the matrices of all adapters in the step stand side by side, every token is
               multiplied by all of them, and the results of other adapters are set to 0 before the
               second product. Two products, however many adapters there are
    segments   many tokens: each adapter's tokens are collected and multiplied by its matrices alone

The first multiplies more and calls less, which pays as long as a call costs more than its arithmetic.

Source: the gathered products of Punica, arXiv:2310.18547, and `vllm/lora/ops/torch_ops/lora_ops.py`,
which copy the matrices of each token's adapter instead. On a GPU a kernel reads them in place.

Differs from vLLM: slots have no fixed size, so that a slot takes any rank; the output layer and the
embedding cannot be adapted, nor the experts of a mixture.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.core.compute.device import activation_dtype
from engine.core.compute.model import Batch, Model
from engine.core.runner import Row
from engine.extensions.adapters import AdapterError
from engine.models.config import LlamaConfig
from engine.models.decoder import Decoder
from engine.models.layers import FeedForward, Linear
from engine.models.peft_files import LoRAPair, read_peft

NO_ADAPTER = -1
_GATHERED_TOKENS = 24  # with 8 adapters and 8 to 64 tokens, the faster one by up to 2.5 times


class Pair:
    """An adapter's matrices for one `Linear`, in the model's precision; B contains the scaling.

    a  [r, in]
    b  [out, r]
    """

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b


class Step:
    """Which adapter each token of a step has.

    slots   the slots in use, ascending
    owner   [tokens] each token's slot, or NO_ADAPTER
    tokens  for each of `slots`, the indexes of its tokens
    """

    def __init__(self, owner: Sequence[int], device: torch.device) -> None:
        self.slots = tuple(sorted(set(owner) - {NO_ADAPTER}))
        self.owner = torch.tensor(owner, device=device)
        self.tokens = [(self.owner == slot).nonzero().flatten() for slot in self.slots]


def reference_product(
    x: Tensor, y: Tensor, pairs: Mapping[int, Pair], owner: Sequence[int]
) -> Tensor:
    """Return y[t] + B (A x[t]) for each token t, with the matrices of its adapter.

    x      [tokens, in]
    y      [tokens, out], the product with the base model's weights
    owner  each token's slot; a slot without a pair leaves the module as it is
    """
    rows = []
    for t, slot in enumerate(owner):
        row = y[t]
        if slot in pairs:
            row = row + pairs[slot].b @ (pairs[slot].a @ x[t])
        rows.append(row)
    return torch.stack(rows)


class AdaptedLinear:
    """A `Linear` and the adapters that change it; it takes the place of the `Linear`.

    pairs  by slot
    """

    def __init__(self, base: Linear, shape: tuple[int, int]) -> None:
        self.base = base
        self.shape = shape  # [out, in]
        self.pairs: dict[int, Pair] = {}
        self.step: Step | None = None
        self._together: tuple[tuple[int, ...], Tensor, Tensor, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Project `x` [tokens, in] to [tokens, out]."""
        y = self.base(x)
        step = self.step
        if step is None or not any(slot in self.pairs for slot in step.slots):
            return y
        if len(x) <= _GATHERED_TOKENS:
            return self.gathered(x, y, step)
        return self.segments(x, y, step)

    def gathered(self, x: Tensor, y: Tensor, step: Step) -> Tensor:
        """Add the products with the matrices of all adapters side by side."""
        together = self._together
        if together is None or together[0] != step.slots:
            slots = [slot for slot in step.slots if slot in self.pairs]
            pairs = [self.pairs[slot] for slot in slots]
            ranks = torch.tensor([len(pair.a) for pair in pairs])
            owner = torch.tensor(slots).repeat_interleave(ranks).to(x.device)
            a, b = torch.cat([pair.a for pair in pairs]), torch.cat([p.b for p in pairs], dim=1)
            self._together = together = step.slots, a, b.t().contiguous(), owner
        _, a, b, owner = together
        inner = torch.mm(x, a.t())
        if len(step.slots) > 1 or len(step.tokens[0]) < len(x):
            inner.masked_fill_(step.owner[:, None] != owner, 0.0)
        return y.addmm_(inner, b)

    def segments(self, x: Tensor, y: Tensor, step: Step) -> Tensor:
        """Add the products of each adapter with its own tokens."""
        for slot, tokens in zip(step.slots, step.tokens, strict=True):
            if (pair := self.pairs.get(slot)) is not None:
                if len(tokens) == len(x):
                    return y.addmm_(x @ pair.a.t(), pair.b.t())
                y.index_add_(0, tokens, (x[tokens] @ pair.a.t()) @ pair.b.t())
        return y

    def put(self, slot: int, pair: Pair | None) -> None:
        """Fill or empty a slot."""
        self._together = None
        if pair is None:
            self.pairs.pop(slot, None)
        else:
            self.pairs[slot] = pair


class HostAdapter:
    """An adapter in memory, not in a slot: its pairs by layer and `Linear`.

    rank    the largest of its modules
    nbytes  of its matrices
    """

    def __init__(self, pairs: dict[tuple[int, str], Pair]) -> None:
        self.pairs = pairs
        self.rank = max(len(pair.a) for pair in pairs.values())
        self.nbytes = sum(pair.a.nbytes + pair.b.nbytes for pair in pairs.values())


# A `Linear` computes several modules at once: their outputs are below one another.
_PARTS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_FUSED = {"qkv": ("self_attn.qkv_proj",), "gate_up": ("mlp.gate_up_proj",)}


class ModelAdapters:
    """The slots of a runner's model; `engine/extensions/adapters.py` decides what is in them.

    The model's layers are wrapped when the first adapter is read, so a model without any computes as
    before.

    slots  by key of the adapter
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._linears: dict[tuple[int, str], AdaptedLinear] = {}
        self.slots: dict[str, int] = {}

    def read(self, path: str) -> HostAdapter:
        """Read a PEFT directory into memory. Raises AdapterError if the model cannot use it.

        Any thread may call this while the model computes: a wrapped `Linear` without adapters computes
        what it did before.
        """
        if not self._linears:
            self._wrap()
        pairs = read_peft(Path(path))
        config = self._model.config
        assert isinstance(config, LlamaConfig)
        parts = _PARTS | _FUSED if config.family.fused else _PARTS
        queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
        rows = {"self_attn.q_proj": queries, "mlp.gate_proj": config.intermediate_size}
        rows |= dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), keys)
        rows["mlp.up_proj"] = config.intermediate_size
        adapter = {}
        for (layer, kind), linear in self._linears.items():
            names = parts[kind]
            sizes = [linear.shape[0]] if len(names) == 1 else [rows[name] for name in names]
            own = [pairs.pop((layer, name), None) for name in names]
            if any(own):
                adapter[layer, kind] = self._stacked(path, names, own, sizes, linear.shape)
        if pairs:
            layer, name = next(iter(pairs))
            raise AdapterError(
                f"{path} adapts layers.{layer}.{name}, which {config.architecture} does not have or "
                f"which cannot be adapted; supported: {', '.join(sum(parts.values(), ()))}"
            )
        return HostAdapter(adapter)

    def _stacked(
        self,
        path: str,
        names: Sequence[str],
        own: Sequence[LoRAPair | None],
        sizes: Sequence[int],
        shape: tuple[int, int],
    ) -> Pair:
        """Return one pair for the modules of a `Linear`: A below one another, B on the diagonal."""
        dtype, device = activation_dtype(self._model.dtype, self._model.device), self._model.device
        rank = sum(len(pair.a) for pair in own if pair is not None)
        a = torch.zeros(rank, shape[1], dtype=dtype, device=device)
        b = torch.zeros(shape[0], rank, dtype=dtype, device=device)
        row = column = 0
        for name, pair, size in zip(names, own, sizes, strict=True):
            if pair is not None:
                if len(pair.a) > max(shape):
                    raise AdapterError(
                        f"{path}: {name} has rank {len(pair.a)}, more than the matrix of the model has "
                        f"rows or columns ({max(shape)}): merge the adapter into the model instead"
                    )
                if pair.a.shape[1] != shape[1] or len(pair.b) != size:
                    raise AdapterError(
                        f"{path}: {name} is [{len(pair.b)}, {pair.a.shape[1]}], but the model's is "
                        f"[{size}, {shape[1]}]: the adapter belongs to another model"
                    )
                end = column + len(pair.a)
                a[column:end] = pair.a
                b[row : row + size, column:end] = pair.b * pair.scaling
                column = end
            row += size
        return Pair(a, b)

    def put(self, slot: int, key: str, adapter: HostAdapter) -> None:
        """Put an adapter into a slot, in place of what is there."""
        self.clear(slot)
        self.slots[key] = slot
        for place, pair in adapter.pairs.items():
            self._linears[place].put(slot, pair)

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        self.slots = {key: one for key, one in self.slots.items() if one != slot}
        for linear in self._linears.values():
            linear.put(slot, None)

    def begin(self, rows: Sequence[Row], batch: Batch) -> None:
        """Note which adapter each token of the flat batch has."""
        slots = {
            row.request.id: self.slots[row.request.extra_key[0]]
            for row in rows
            if row.request.extra_key and row.request.extra_key[0]
        }
        step = None
        if slots:
            owner = list[int]()
            for group in batch.groups:
                for request in group.requests:
                    owner += [slots.get(request, NO_ADAPTER)] * group.query_len
            step = Step(owner, batch.token_ids.device)
        for linear in self._linears.values():
            linear.step = step

    def _wrap(self) -> None:
        if type(self._model) is not Decoder:
            architecture = self._model.config.architecture
            raise AdapterError(
                f"adapters of {architecture} are not supported, only of Llama's kind"
            )
        config = self._model.config
        for index, layer in enumerate(self._model._layers):
            for holder, attribute, kind, shape in _linears(layer, config):
                linear = AdaptedLinear(getattr(holder, attribute), shape)
                setattr(holder, attribute, linear)
                self._linears[index, kind] = linear


def _linears(
    layer: object, config: LlamaConfig
) -> Iterator[tuple[object, str, str, tuple[int, int]]]:
    """Yield the projections of a layer: (object, attribute, kind, [out, in])."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    both = queries + 2 * config.num_kv_heads * config.head_dim
    attention = layer.attention  # type: ignore[attr-defined]
    yield attention, "_qkv", "qkv", (both, hidden)
    yield attention, "_output", "output", (hidden, queries)
    network = layer.feed_forward  # type: ignore[attr-defined]
    if type(network) is FeedForward:
        yield network, "_gate_up", "gate_up", (2 * inner, hidden)
        yield network, "_down", "down", (hidden, inner)
