"""Which part of which weight a device has.

Megatron-LM (arXiv:1909.08053) cuts the first matrix of a pair by its outputs (column parallel) and
the second by its inputs (row parallel). Each device then multiplies its part of the first by its part
of the second without talking to the others, and the sum of the results is the whole product:

    column   q, k, v, gate, up       rows of the stored weight [out, in]
    row      o, down                 columns of the stored weight; the result has to be summed
    rows     embedding, lm_head      the tokens of the vocabulary

vLLM has them in `vllm/model_executor/layers/linear.py` (ColumnParallelLinear, RowParallelLinear) and
`vocab_parallel_embedding.py`. If there are fewer KV heads than devices, several devices have a copy of
one, as in `QKVParallelLinear`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.core.compute.model import ModelConfig
from engine.core.config import ConfigError
from engine.models.config import LlamaConfig
from engine.models.weights.checkpoint import Checkpoint, CheckpointError
from engine.models.weights.matrix import Int8Matrix, Matrix, RowLookup
from engine.parallel.settings import Parallel


@dataclass(frozen=True, slots=True)
class Shard:
    """One device's part of a model.

    rank      number of the device, stage by stage
    part      its number among the devices of its stage
    layers    the layers of its stage
    tokens    its part of the vocabulary
    cuts      the rows and columns that a rule of your own keeps, by the name of the weight
    """

    parallel: Parallel
    config: LlamaConfig
    rank: int
    cuts: Mapping[str, tuple[range, range]] = field(default_factory=dict)

    @property
    def part(self) -> int:
        """See above."""
        return self.rank % self.parallel.tensor

    @property
    def stage(self) -> int:
        """The number of its pipeline stage."""
        return self.rank // self.parallel.tensor

    @property
    def is_first(self) -> bool:
        """Whether its stage has the embedding."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether its stage has the output layer."""
        return self.stage == self.parallel.pipeline - 1

    @property
    def layers(self) -> range:
        """See above."""
        return _part(self.config.num_layers, self.stage, self.parallel.pipeline)

    @property
    def tokens(self) -> range:
        """See above."""
        return self.of(self.config.vocab_size)

    @property
    def kv_heads(self) -> range:
        """The KV heads that its query heads read."""
        count, tensor = self.config.num_kv_heads, self.parallel.tensor
        if tensor <= count:
            return self.of(count)
        return range(first := self.part * count // tensor, first + 1)

    def of(self, size: int) -> range:
        """Return its part of something that is divided evenly."""
        return _part(size, self.part, self.parallel.tensor)

    @property
    def local(self) -> LlamaConfig:
        """The configuration of a smaller model: the part on this device."""
        config, layers = self.config, slice(self.layers.start, self.layers.stop)
        tensor = self.parallel.tensor
        return replace(
            config,
            vocab_size=len(self.tokens),
            num_layers=len(self.layers),
            num_heads=config.num_heads // tensor,
            num_kv_heads=len(self.kv_heads),
            intermediate_size=len(self.of(config.intermediate_size)),
            expert_size=config.expert_size
            if self.parallel.expert
            else len(self.of(config.expert_size)),
            windows=config.windows[layers],
            ropes=config.ropes[layers],
            sparse_layers=config.sparse_layers[layers],
        )


def _part(size: int, part: int, parts: int) -> range:
    return range(size * part // parts, size * (part + 1) // parts)


def weights_to_cut(config: LlamaConfig) -> dict[str, tuple[int, int, int]]:
    """Return rows, columns and unit of each weight of a layer that a rule of your own can cut.

    A unit is the number of rows (columns for o and down) that have to stay together: those of the
    query heads that share a KV head, and of that KV head.
    """
    hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_heads * size, config.num_kv_heads * size
    shared = queries // config.num_kv_heads
    return {
        "q": (queries, hidden, shared),
        "k": (keys, hidden, size),
        "v": (keys, hidden, size),
        "o": (hidden, queries, shared),
        "gate": (inner, hidden, 1),
        "up": (inner, hidden, 1),
        "down": (hidden, inner, 1),
    }


def own_cuts(parallel: Parallel, config: LlamaConfig) -> list[dict[str, tuple[range, range]]]:
    """Return what `parallel.cut` keeps of each weight, for each part; {} without such a rule.

    Raises ConfigError for a model whose layers have other weights than these.
    """
    if parallel.cut is None:
        return [{} for _ in range(parallel.tensor)]
    if config.family.fused or config.qkv_bias or config.num_experts:
        raise ConfigError("cut needs a dense model without fused weights and biases of queries")
    return [
        {
            f"{name}_proj": parallel.cut(name, *sizes, part, parallel.tensor)
            for name, sizes in weights_to_cut(config).items()
        }
        for part in range(parallel.tensor)
    ]


def check_division(parallel: Parallel, config: ModelConfig, weights: Checkpoint) -> LlamaConfig:
    """Return the configuration. Raises ConfigError for a model that cannot be divided like this."""
    if type(config) is not LlamaConfig or weights.is_quantized or type(weights) is not Checkpoint:
        raise ConfigError(
            f"parallel supports unquantized Llama-like models in safetensors, not "
            f"{config.architecture} from {type(weights).__name__}"
        )
    tensor, kv_heads = parallel.tensor, config.num_kv_heads
    if config.num_heads % tensor:
        raise ConfigError(
            f"tensor = {tensor} must divide the model's num_heads, which is {config.num_heads}"
        )
    if parallel.expert and not config.num_experts:
        raise ConfigError(f"expert needs a mixture of experts; {config.architecture} has none")
    if kv_heads % tensor and tensor % kv_heads:
        raise ConfigError(
            f"tensor = {tensor} must divide num_kv_heads = {kv_heads} or be a multiple"
        )
    if parallel.pipeline > config.num_layers:
        raise ConfigError(
            f"pipeline = {parallel.pipeline} needs as many layers; the model has {config.num_layers}"
        )
    if tensor > 1 and config.family.qk_norm == "projection":
        raise ConfigError(
            f"tensor: {config.architecture} normalises all heads together, so they cannot be divided"
        )
    return config


class ShardedCheckpoint(Checkpoint):
    """A checkpoint of which only one device's part is read, under the names of a smaller model."""

    def __init__(self, directory: Path, dtype: torch.dtype, shard: Shard) -> None:
        self._shard = shard
        if shard.parallel.expert:
            self.experts = shard.of(shard.config.num_experts)
        super().__init__(directory, dtype)
        kept = dict[str, object]()
        for name, tensor in self._tensors.items():
            if (local := self._local_name(name)) is not None:
                kept[local] = tensor
        self._tensors, self._unused = kept, set(kept)

    def _local_name(self, name: str) -> str | None:
        """Return the name in the smaller model; None for a tensor of another device."""
        shard = self._shard
        before, layers, after = name.partition("layers.")
        if not layers:
            ends = "embed_tokens.weight", "lm_head.weight"
            unused = name.endswith(ends) and not (shard.is_first or shard.is_last)
            unused |= name.endswith("lm_head.weight") and not shard.is_last
            tied = shard.config.tied_embeddings
            unused |= name.endswith("embed_tokens.weight") and not (shard.is_first or tied)
            return None if unused else name
        index, _, rest = after.partition(".")
        if int(index) not in shard.layers:
            return None
        _, experts, expert = rest.partition("experts.")
        if experts and int(expert.partition(".")[0]) not in self.experts:
            return None
        return f"{before}layers.{int(index) - shard.layers.start}.{rest}"

    def get_tensor(self, name: str) -> Tensor:
        """Return this device's part of a tensor."""
        return self._cut(name, super().get_tensor(name))

    def _view(self, name: str, *shape: int) -> Tensor:
        if (stored := self._tensors.get(name)) is None:
            return super()._view(name, *shape)  # which raises the error
        part = self.get_tensor(name)
        if part.shape != shape:
            raise CheckpointError(
                f"{name} in {stored.path} has shape {list(stored.shape)}, of which this device has "
                f"{list(part.shape)}; the configuration implies {list(shape)}"
            )
        return part

    def _cut(self, name: str, tensor: Tensor) -> Tensor:
        shard, config = self._shard, self._shard.config
        if shard.parallel.tensor == 1 or (shard.parallel.expert and ".experts." in name):
            return tensor
        *_, kind, end = ["", *name.split(".")]
        if kind in shard.cuts:
            rows, columns = shard.cuts[kind]
            return tensor[rows.start : rows.stop, columns.start : columns.stop]
        inner = config.expert_size if ".experts." in name else config.intermediate_size
        heads, kv_heads, size = shard.of(config.num_heads), shard.kv_heads, config.head_dim
        queries, keys = _times(heads, size), _times(kv_heads, size)
        if kind in ("o_proj", "down_proj"):
            if end == "bias":  # the devices' results are summed, so that one of them adds it
                return tensor if shard.part == 0 else torch.zeros_like(tensor)
            columns = shard.of(inner) if kind == "down_proj" else queries
            return tensor[:, columns.start : columns.stop]
        own, first_key = shard.of(inner), config.num_heads * size
        first_value = first_key + config.num_kv_heads * size
        cuts = {
            "q_proj": [queries],
            "k_proj": [keys],
            "v_proj": [keys],
            "qkv_proj": [queries, _after(first_key, keys), _after(first_value, keys)],
            "gate_proj": [own],
            "up_proj": [own],
            "gate_up_proj": [own, _after(inner, own)],
            "embed_tokens": [shard.tokens],
            "lm_head": [shard.tokens],
        }.get(kind, [heads] if end == "sinks" else [range(len(tensor))])
        parts = [tensor[one.start : one.stop] for one in cuts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def load_embedding(self, name: str, rows: int, columns: int) -> Tensor | Int8Matrix:
        """Load this device's tokens; a stage without the embedding gets a single row of zeros."""
        if name in self:
            return super().load_embedding(name, rows, columns)
        return torch.zeros(1, columns, dtype=self.dtype, device=self.device)

    def load_lm_head(
        self, embedding: Tensor | Int8Matrix, *, tied: bool, name: str = "lm_head.weight"
    ) -> Matrix:
        """Load this device's tokens of the output layer."""
        if not self._shard.is_last:
            return embedding
        if name not in self:
            return super().load_lm_head(embedding, tied=tied, name=name)
        return self.load_matrix({name: len(self._shard.tokens)}, embedding.shape[1])

    def stored_rows(self, name: str) -> Tensor | RowLookup | None:
        """Return the rows as a view of the file, see `Checkpoint`."""
        return super().stored_rows(name) if name in self else None


def _times(rows: range, size: int) -> range:
    return range(rows.start * size, rows.stop * size)


def _after(first: int, rows: range) -> range:
    return range(first + rows.start, first + rows.stop)
