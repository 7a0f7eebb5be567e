"""The memory that a model needs, stated before it is loaded.

    weights   every tensor in the target type, read from the headers of the files
    KV        all blocks that the engine's settings ask for; in sliding layers, window pages
    mirror    contiguous copies of the contexts that are decoded (`engine/core/compute/mirror.py`)
    working   the tensors of one step: activations, attention buffers, logits
    draft     weights and KV of a draft model; its steps and the target's take turns

Loading needs no memory of its own: weights are mapped, or converted straight into their place.

A model that does not fit is rejected before anything is loaded, with a setting that would fit. Without
this check the operating system would swap, or end the process when its memory is full.

Differs from vLLM, which loads the model, runs a dummy step to measure the peak, and gives KV what
`gpu_memory_utilization` leaves. Here the number of KV slots is a setting, because lessons depend on it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil
import torch

from engine.core.compute.device import activation_dtype, dtype_name
from engine.core.compute.model import ModelConfig, kv_bytes, mirror_bytes
from engine.core.config import ConfigError, EngineConfig
from engine.extensions.draft_model import num_draft_blocks
from engine.extensions.window_pages import num_window_pages
from engine.models.byte_sizes import byte_size
from engine.models.int8_kv import Int8KV, stored_kv
from engine.models.weights.checkpoint import Checkpoint

_FLOAT32 = torch.float32.itemsize
_LOGITS_COPIES = 4  # logits as computed, as float32, as log-probabilities, and a copy for sampling
_QUANTIZED_BYTES = 1.01  # per weight: int8 and a scale per row; int4 takes less


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What a model needs and what is available, in bytes; see above.

    kv_tokens  token slots in the layers that keep every token
    per_token  what each of them adds to KV, mirror and working memory, at most
    draft      the plan for the draft model, if there is one
    """

    name: str
    dtype: torch.dtype
    kv_tokens: int
    weights: int
    kv: int
    mirror: int
    working: int
    per_token: int
    available: int
    is_quantized: bool
    draft: "MemoryPlan | None" = None

    @property
    def needed(self) -> int:
        """The sum."""
        total = self.weights + self.kv + self.mirror + self.working
        if draft := self.draft:
            total += draft.weights + draft.kv + draft.mirror + max(draft.working - self.working, 0)
        return total

    def __str__(self) -> str:
        """Return the plan in one line."""
        line = (
            f"{self.name} needs {byte_size(self.needed)} of {byte_size(self.available)} available: "
            f"weights {byte_size(self.weights)} ({self._stored_as}), KV {byte_size(self.kv)} "
            f"for {self.kv_tokens} tokens, its mirror {byte_size(self.mirror)}, "
            f"working memory {byte_size(self.working)}"
        )
        if draft := self.draft:
            weights, kv = byte_size(draft.weights), byte_size(draft.kv)
            line += f", draft model {draft.name} with weights {weights} and KV {kv}"
        return line

    @property
    def _stored_as(self) -> str:
        dtype = dtype_name(self.dtype)
        return f"int4 or int8, computed in {dtype}" if self.is_quantized else dtype

    def check(self) -> None:
        """Raise ConfigError, which names settings that would fit, if the memory does not suffice."""
        if self.needed > self.available:
            raise ConfigError(f"{self}; {self._advice()}")

    def _advice(self) -> str:
        """Return what would fit."""
        fits: list[str] = []
        if self.kv_tokens:
            excess = self.needed - self.available
            per_token = self.per_token + (self.draft.per_token if self.draft else 0)
            tokens = self.kv_tokens - -(-excess // per_token)
            if tokens >= _FEWEST_TOKENS:
                fits.append(f"set max_kv_tokens to at most {tokens - tokens % _FEWEST_TOKENS}")
        halves = not (self.is_quantized or (self.draft and self.draft.is_quantized))
        # Mirror and working memory may not shrink: activations may stay float32.
        half = (self.needed + self.mirror) / 2 + self.working
        if self.dtype == torch.float32 and halves and half <= self.available:
            fits.append(f"set dtype to bfloat16 (about {byte_size(half)})")
        quantized = self.weights / self.dtype.itemsize * _QUANTIZED_BYTES
        small = self.needed - self.weights + quantized
        if not self.is_quantized and small <= self.available:
            fits.append(f"use a quantized GGUF file of this model (about {byte_size(small)})")
        return ", or ".join(fits) or "use a smaller model"


_FEWEST_TOKENS = 256  # an engine with fewer KV slots serves no useful request


def plan_memory(
    name: str,
    weights: Checkpoint,
    model: ModelConfig,
    engine: EngineConfig | None,
    *,
    draft: MemoryPlan | None = None,
    draft_length: int | None = None,
) -> MemoryPlan:
    """Return the plan for a checkpoint whose `dtype` and `device` are set.

    engine        the engine's settings; None plans the weights alone
    draft         the plan for the draft model beside this model
    draft_length  for the plan of a draft model: its number of drafts, see `num_draft_blocks`
    """
    dtype, kv, mirror, working, tokens, per_token = weights.dtype, 0, 0, 0, 0, 0
    activations = activation_dtype(dtype, weights.device)
    if engine:
        blocks, pages = engine.num_blocks, num_window_pages(engine, model.window)
        if draft_length is not None:
            blocks, pages = num_draft_blocks(engine, draft_length), None
        # A draft model keeps its KV in its own precision.
        stored, scale = stored_kv(dtype, "auto" if draft_length is not None else engine.kv_dtype)
        kv = kv_bytes(model, stored, blocks, engine.block_size, pages, scale_bytes=scale)
        mirror = mirror_bytes(model, activations, blocks, engine.block_size)
        working = working_bytes(model, engine, dtype)
        tokens = engine.num_blocks * engine.block_size
        per_token = kv_bytes(model, stored, 1, 1, None if pages is None else 0, scale_bytes=scale)
        per_token += mirror_bytes(model, activations, 1, 1) + _gathered_bytes(model, dtype)
    return MemoryPlan(
        name=name,
        dtype=dtype,
        kv_tokens=tokens,
        weights=weights.weight_bytes(),
        kv=kv,
        mirror=mirror,
        working=working,
        per_token=per_token,
        available=available_bytes(weights.device),
        is_quantized=weights.is_quantized,
        draft=draft,
    )


def working_bytes(model: ModelConfig, engine: EngineConfig, dtype: torch.dtype) -> int:
    """Return an upper estimate of the tensors that one step needs at the same time.

    It leaves out the logits of scored prompts (`prompt_logprobs`), which few requests ask for.
    """
    size, shapes = dtype.itemsize, [model.kv_shape(layer) for layer in range(model.num_layers)]
    tokens = max(engine.token_budget, engine.max_batch_size)
    # The residual stream and its norm, in float32 too; queries, keys and values; gate, up and product.
    per_token = 2 * model.hidden_size * (size + _FLOAT32)
    heads = max((model.num_heads + 2 * kv_heads) * head_dim for kv_heads, head_dim in shapes)
    per_token += 2 * heads * (size + _FLOAT32) + 3 * model.intermediate_size * size
    # The inputs that Gemma 4's layers add to the residual stream, and what they are computed from.
    per_token += 3 * model.num_layers * getattr(model, "per_layer_size", 0) * (size + _FLOAT32)
    slots = engine.num_blocks * engine.block_size
    # One chunk with the whole context; the mask repeats for query heads that share a KV head.
    sharing = max(model.num_heads // kv_heads for kv_heads, _ in shapes)
    mask = engine.token_budget * sharing * min(slots, model.max_context) * (size + _FLOAT32)
    logits = engine.max_batch_size * model.vocab_size * _FLOAT32 * _LOGITS_COPIES
    return tokens * per_token + slots * _gathered_bytes(model, dtype) + mask + logits


def _gathered_bytes(model: ModelConfig, dtype: torch.dtype) -> int:
    """Return the bytes of a token in the buffers that attention gathers contexts into.

    The layers with the same window share a buffer; see `PagedAttention`. Beside a buffer in half
    precision, a CPU without instructions for it has one in float32.
    """
    shapes = {window: model.kv_shape(layer) for layer, window in enumerate(model.windows)}
    values = 2 * sum(map(math.prod, shapes.values()))
    return values * (dtype.itemsize + (_FLOAT32 if dtype != torch.float32 else 0))


class InMemory:
    """A loaded model, and whether KV memory fits beside it."""

    config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    kernels: Mapping[str, str] = MappingProxyType({})  # `loader.build` notes them

    def check_kv(
        self, num_blocks: int, block_size: int, num_window_pages: int | None, kv_dtype: str = "auto"
    ) -> None:
        """Raise ConfigError if KV memory of this size does not fit beside what is loaded.

        Linux allocates more memory than there is, and ends the process when it is used.
        """
        model = self.config
        dtype, scale = stored_kv(self.dtype, kv_dtype)
        needed = kv_bytes(model, dtype, num_blocks, block_size, num_window_pages, scale_bytes=scale)
        available = available_bytes(self.device)
        if needed <= available:
            return
        # Every layer with all tokens always suffices; window pages may allow more.
        fits = available // kv_bytes(model, dtype, 1, 1, scale_bytes=scale)
        if num_window_pages is not None:
            windows = kv_bytes(model, dtype, 0, block_size, num_window_pages, scale_bytes=scale)
            per_token = kv_bytes(model, dtype, 1, 1, 0, scale_bytes=scale)
            fits = max(fits, (available - windows) // per_token if per_token else 0)
        raise ConfigError(
            f"max_kv_tokens: KV for {num_blocks * block_size} tokens needs {byte_size(needed)}, but "
            f"{byte_size(available)} are available; lower it to at most {fits}"
        )

    def kv_codec(self, kv_dtype: str) -> Int8KV | None:
        """Return the codec of a `kv_dtype`; None for "auto"."""
        return Int8KV() if kv_dtype == "int8" else None


def available_bytes(device: torch.device) -> int:
    """Return the memory that a new tensor on the device can use without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    machine = int(psutil.virtual_memory().available)
    if device.type == "mps":  # shares the machine's memory, of which Metal recommends a part
        allowed = torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return min(machine, allowed)
    return min([machine, *_container_limits()])


# The files of a control group, in version 2 and in version 1: the limit, the usage, and the entry of
# memory.stat that counts the part of the usage which is only a cache of files.
_VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _container_limits(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """Return what the limits of control groups leave to this process; psutil does not know them.

    A container sees its own group at the root. Elsewhere, /proc names the process's group.
    """
    left: list[int] = []
    for directory in {root, root / "memory", *_own_groups(root)}:
        for limit, usage, cache in _VERSIONS:
            try:
                allowed = (directory / limit).read_text().strip()
                used = int((directory / usage).read_text())
                lines = (directory / "memory.stat").read_text().splitlines()
            except (OSError, ValueError):
                continue  # another version, or a group without limits
            cached = {key: int(value) for key, _, value in (one.partition(" ") for one in lines)}
            if allowed != "max":
                left.append(max(0, int(allowed) - used + cached.get(cache, 0)))
    return left


def _own_groups(root: Path) -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    groups = [line.split(":", 2) for line in lines]
    return [
        root / controllers / path.lstrip("/")
        for _, controllers, path in groups
        if controllers in ("", "memory")
    ]
