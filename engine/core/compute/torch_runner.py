"""The runner that runs the model: one forward pass over a step's rows, then sampling.

    block copies -> batch -> decoder (attention reads KV blocks) -> sampler -> verification of drafts

Differs from vLLM (`vllm/v1/worker/gpu_model_runner.py`):

- The batch is rebuilt in every step. vLLM keeps a persistent batch and updates it.
- There are no CUDA graphs and no compilation: the model runs eagerly.
- On any device, logits are copied to the CPU and sampled there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from engine.core.compute.device import CPU, dtype_name
from engine.core.compute.kv_cache import KVCache
from engine.core.compute.mirror import Mirror, MirroredAttention
from engine.core.compute.model import (
    Attend,
    Batch,
    Group,
    Model,
    ModelConfig,
    kv_bytes_per_token,
    mirror_bytes,
)
from engine.core.compute.sampler import (
    TokenProbs,
    probabilities,
    sample,
    score_prompts,
    top_logprobs,
    truncated_probs,
)
from engine.core.runner import (
    KVFormat,
    LogitPosition,
    Row,
    Sampled,
    attention_groups,
    logit_positions,
)
from engine.core.speculation.verification import Verifier, apply_verifier, split_output


class TorchRunner:
    """A decoder with a paged KV cache; see `engine.runner.Runner`.

    max_context      longest text (prompt plus output) that the model supports
    window           widest sliding window of a layer; None if no layer slides
    vocab_size       token ids are 0 .. vocab_size - 1
    kv_cache         the KV memory; None before `reserve`
    attention        a class like `PagedAttention`: created once per step, called once per layer;
                     `MirroredAttention` if you set none
    verifier         a learner's own verifier of drafts; None for `count_accepted`
    logits_to_probs  a function like `truncated_probs`, for requests that are not greedy
    kv_dtype         the setting of the engine that reserves KV memory; see `EngineConfig`
    expert_loads     how many tokens each expert of each layer computed in the latest `run`
    adapters         slots for LoRA adapters; the loader sets it, see `engine/models/lora.py`
    """

    def __init__(self, model: Model, name: str = "") -> None:
        self._model = model
        self._name = name
        self.kv_cache: KVCache | None = None
        self.attention: Callable[[ModelConfig, KVCache, Batch], Attend] = MirroredAttention
        self.verifier: Verifier | None = None
        self.logits_to_probs: TokenProbs = truncated_probs
        self.max_context: int | None = model.config.max_context
        self.window: int | None = model.config.window
        self.vocab_size = model.config.vocab_size
        self.kv_dtype = "auto"
        self.expert_loads: list[list[int]] = []
        self.adapters: Any = None

    def describe(self) -> dict[str, Any]:
        """Return the model's sizes, its precision, its kernels and its KV memory in bytes.

        `kv_bytes_per_token` counts every layer that has KV of its own. `kv_bytes` is the KV memory
        that is reserved; it is less than that for all tokens if sliding layers have window pages.
        `mirror_bytes` is the most memory that the mirror of contexts takes, see `mirror.py`.
        """
        config, cache = self._model.config, self.kv_cache
        reserved: dict[str, Any] = {}
        per_token = kv_bytes_per_token(config, self._model.dtype)
        if cache is not None:
            reserved["kv_bytes"] = cache.nbytes
            if cache.codec is not None:
                reserved["kv_dtype"] = cache.codec.name
                per_token = cache.page_bytes // cache.block_size
            if self.attention is MirroredAttention:
                reserved["mirror_bytes"] = mirror_bytes(
                    config, cache.activation_dtype, cache.num_blocks, cache.block_size
                )
        unlike: dict[str, Any] = {}  # the layers whose KV is not like that of the others
        if config.global_heads is not None:
            kv_heads, head_dim = config.global_heads
            unlike |= {"global_kv_heads": kv_heads, "global_head_dim": head_dim}
        if config.num_kv_shared_layers:
            unlike |= {"kv_shared_layers": config.num_kv_shared_layers}
        experts = {}
        if num_experts := getattr(config, "num_experts", 0):
            chosen = getattr(config, "experts_per_token", 0)
            experts = {"experts": num_experts, "experts_per_token": chosen}
        return {
            "name": self._name,
            "architecture": config.architecture,
            "parameters": self._model.num_parameters,
            "layers": config.num_layers,
            "hidden_size": config.hidden_size,
            "heads": config.num_heads,
            "kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "vocab_size": config.vocab_size,
            "max_context": config.max_context,
            "dtype": dtype_name(self._model.dtype),
            "device": self._model.device.type,
            "weight_bytes": self._model.weight_bytes,
            "kv_bytes_per_token": per_token,
            "kernels": dict(self._model.kernels),
            **unlike,
            **reserved,
            **experts,
        }

    def reserve(
        self, num_blocks: int, block_size: int, num_window_pages: int | None = None
    ) -> None:
        """Allocate the KV cache. Raises ConfigError if it does not fit in memory.

        Each engine calls this once. An earlier engine's KV cache is freed first, so the two never
        exist at the same time.
        """
        config = self._model.config
        dtype, device = self._model.dtype, self._model.device
        self.kv_cache = None
        self._model.check_kv(num_blocks, block_size, num_window_pages, self.kv_dtype)
        codec = self._model.kv_codec(self.kv_dtype)
        self.kv_cache = KVCache(
            config,
            num_blocks,
            block_size,
            dtype,
            device,
            num_window_pages=num_window_pages,
            codec=codec,
        )
        self.kv_cache.mirror = Mirror(config, self.kv_cache)
        self._model.prepare(min(config.max_context, num_blocks * block_size))

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Note which block has which window page."""
        self._reserved().map_window_pages(pages)

    def kv_format(self) -> KVFormat:
        """Return the format of a page: the KV of one block in all layers, see `KVCache`."""
        cache = self._reserved()
        dtype = dtype_name(self._model.dtype) if cache.codec is None else cache.codec.name
        model = self._model.fingerprint
        if cache.has_window_pages:
            model += f", sliding layers only in a window of {self.window}"
        return KVFormat(model, dtype, cache.page_shape, cache.page_bytes)

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return the pages of blocks."""
        return self._reserved().read_pages(blocks)

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Write one page to each of `blocks`."""
        self._reserved().write_pages(blocks, pages)

    def _reserved(self) -> KVCache:
        if self.kv_cache is None:
            raise RuntimeError("reserve(num_blocks, block_size) must be called first")
        return self.kv_cache

    @torch.inference_mode()
    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Copy blocks (source, destination), then compute all rows in one forward pass.

        Returns, for each row, one `Sampled` per entry of `row.samples`, and fills `row.scores`.
        """
        if self.kv_cache is None:
            raise RuntimeError("reserve(num_blocks, block_size) must be called before run()")
        if copies:
            self.kv_cache.copy(copies)
        if not rows:
            return []
        batch = make_batch(rows, self.kv_cache.block_size, self._model.device)
        if self.adapters is not None and self.adapters.slots:
            self.adapters.begin(rows, batch)
        attention = self.attention(self._model.config, self.kv_cache, batch)
        logits = self._model.forward(
            batch.token_ids, batch.positions, attention, batch.logits_indices
        ).cpu()
        self.expert_loads = self._model.expert_loads
        positions = batch.logit_positions
        if len(logits) > len(positions):
            score_prompts(logits[len(positions) :], rows)
        if not positions:
            return [[] for _ in rows]
        logits = logits[: len(positions)]
        if not batch.has_drafts:
            output, end = sample(logits, positions, self.logits_to_probs), 0
            results: list[list[Sampled]] = []
            for row in rows:
                at, end = end, end + len(row.samples)
                results.append(list(map(output.sampled, range(at, end), range(at + 1, end + 1))))
            return results
        if self.verifier is None:
            return split_output(rows, sample(logits, positions, self.logits_to_probs))
        output = sample(logits.clone(), positions, self.logits_to_probs)
        results = split_output(rows, output)
        logprobs, probs = probabilities(logits, positions, self.logits_to_probs)

        def report(first: int, ids: list[int]) -> Sampled:
            at = range(first, first + len(ids))
            own = logprobs[at, ids].tolist()
            wanted, top = positions[first].params.logprobs, list[list[tuple[int, float]]]()
            if wanted is not None:
                top = top_logprobs(logprobs[first : first + len(ids)], [wanted] * len(ids))
            return Sampled(ids, own, top, [output.masks[i] for i in at if i in output.masks])

        apply_verifier(self.verifier, rows, positions, results, probs=probs.tolist(), report=report)
        return results


def make_batch(rows: Sequence[Row], block_size: int, device: torch.device = CPU) -> Batch:
    """Lay out a step's rows, of which there must be at least one, with the tensors on `device`.

    A row is sampled after its last known token and after each of its drafts. The model runs no Python
    per token. Raises ValueError if a block table is too short for its row. vLLM's counterpart is
    `_prepare_inputs` in `vllm/v1/worker/gpu_model_runner.py`.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slot_mapping: list[int] = []
    first_tokens = [0] * len(rows)  # index of each row's first token in the flat batch
    groups: list[Group] = []
    for members in attention_groups(rows):
        group = Group(slice(len(token_ids), 0), rows[members[0]].count, [], [], [])
        for i in members:
            row, block_table = rows[i], rows[i].request.block_table
            end = row.start + row.count
            if end > len(block_table) * block_size:
                raise ValueError(
                    f"request {row.request.id} has {len(block_table)} KV blocks and needs "
                    f"{-(-end // block_size)}"
                )
            first_tokens[i] = len(token_ids)
            known = end - len(row.drafts)
            token_ids += row.request.tokens[row.start : known]
            token_ids += row.drafts
            for p in range(row.start, end):
                positions.append(p)
                slot_mapping.append(block_table[p // block_size] * block_size + p % block_size)
            group.requests.append(row.request.id)
            group.seq_lens.append(end)
            group.block_tables.append(block_table)
        group.tokens = slice(group.tokens.start, len(token_ids))
        groups.append(group)

    sampled: list[int] = []
    scored: list[int] = []
    has_drafts = False
    positions_of_logits: list[LogitPosition] = []
    for row, first in zip(rows, first_tokens, strict=True):
        has_drafts = has_drafts or bool(row.drafts)
        last = first + row.count - 1 - len(row.drafts)
        for position in logit_positions(row):
            sampled.append(last + len(position.drafts))
            positions_of_logits.append(position)
        if row.request.params.prompt_logprobs is not None:
            scored += range(first, first + row.scored)

    return Batch(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        slot_mapping=torch.tensor(slot_mapping, device=device),
        logits_indices=torch.tensor(sampled + scored, dtype=torch.int64, device=device),
        has_drafts=has_drafts,
        logit_positions=positions_of_logits,
        groups=groups,
    )
