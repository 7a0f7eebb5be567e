"""How many bytes of KV a token takes, and how many users fit, from a config.json alone.

A layer keeps for each token

    MHA  2 * heads * head_dim      keys and values of every head           GPT-2
    MQA  2 * 1 * head_dim          of one head, shared by all              Falcon 7B, arXiv:1911.02150
    GQA  2 * kv_heads * head_dim   of a few heads, shared by groups        Llama 3, arXiv:2305.13245
    MLA  kv_lora_rank + rope_dim   a vector from which each head makes     DeepSeek, arXiv:2405.04434
                                   its own key and value

values, times the bytes of a value. A layer with a sliding window stops growing at the window's length,
so a long sequence takes less than its length times the bytes per token.

`EngineConfig(kv_dtype="int8")` adds a float32 scale per token and head, see `int8_kv.py`; "fp8" is what
vLLM's `--kv-cache-dtype fp8` stores, with a scale per layer that is not counted.

Nothing here needs torch or the weights. `memory.py` plans the memory of a model that is loaded, tensor
by tensor; a test compares the two. Differs from a real deployment:

- Weights are counted from the configuration: norms, biases and vision encoders are left out, and
  quantized weights take the bytes of their format. This is right to about one percent.
- Blocks are not rounded up, and KV is spread evenly over several devices. With tensor parallelism, vLLM
  repeats KV heads on devices that outnumber them, and an MLA latent on every device.
- `utilization` stands for everything else: activations, CUDA graphs, the runtime. It is vLLM's
  `--gpu-memory-utilization`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.models.families import FAMILIES, Family

_VALUE_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1}
SCALE_BYTES = 4  # of the scale that int8 KV has for each token and head
_MXFP4_BYTES = 4.25 / 8  # four bits a value, and eight for the scale of every 32 values
_PLAIN = Family()


class KVSizeError(ValueError):
    """A configuration lacks an entry or describes layers that keep no KV of tokens."""


class KVLayers(NamedTuple):
    """Layers that keep the same KV.

    layers  number of layers
    heads   vectors that are kept for each token: two per KV head, or one latent vector
    size    values of each
    window  tokens that they keep at most; None: all of them
    """

    layers: int
    heads: int
    size: int
    window: int | None = None


class Fit(NamedTuple):
    """How many users fit; all bytes are those of one device.

    users         sequences of `context` tokens that fit at the same time, over all devices
    devices       number of devices
    device_bytes  memory that the model may use
    weights       bytes of the weights
    user_bytes    bytes of one user's KV
    """

    users: int
    devices: int
    context: int
    device_bytes: float
    weights: float
    user_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSizes:
    """The sizes of a model that decide how many users it can serve.

    kind         MHA, MQA, GQA or MLA
    layers       its layers, by what they keep
    max_context  longest sequence
    parameters   of the matrices and embeddings
    weights      their bytes
    """

    kind: str
    layers: tuple[KVLayers, ...]
    max_context: int
    parameters: int
    weights: float

    def per_token(self, kv_dtype: str = "bfloat16") -> int:
        """Return the bytes that one more token takes, as long as no window is full."""
        return self.per_sequence(1, kv_dtype)

    def per_sequence(self, length: int, kv_dtype: str = "bfloat16") -> int:
        """Return the bytes of a sequence of `length` tokens."""
        if kv_dtype not in _VALUE_BYTES:
            raise KVSizeError(
                f"kv_dtype must be one of {', '.join(_VALUE_BYTES)}, got {kv_dtype!r}"
            )
        scale = SCALE_BYTES if kv_dtype == "int8" else 0
        return sum(
            one.layers
            * min(length, length if one.window is None else one.window)
            * one.heads
            * (one.size * _VALUE_BYTES[kv_dtype] + scale)
            for one in self.layers
        )

    def fit(
        self,
        device_bytes: float,
        context: int,
        *,
        kv_dtype: str = "bfloat16",
        devices: int | None = None,
        utilization: float = 0.9,
    ) -> Fit:
        """Return how many users with `context` tokens each fit beside the weights.

        devices  None: as many as hold one and a half times the weights, a power of two
        """
        usable = device_bytes * utilization
        if devices is None:
            devices = 1
            while devices * usable < 1.5 * self.weights:
                devices *= 2
        context = min(context, self.max_context)
        one = self.per_sequence(context, kv_dtype)
        users = max(0, int((devices * usable - self.weights) // one))
        return Fit(users, devices, context, usable, self.weights / devices, one / devices)


def kv_sizes(entries: Mapping[str, Any]) -> KVSizes:
    """Return the sizes of a model from the entries of its config.json.

    Raises KVSizeError, which names the entry, if one is missing or a layer is recurrent.
    """
    names = entries.get("architectures") or [""]
    family = FAMILIES.get(names[0], _PLAIN)
    text = entries.get("text_config") or {}
    own = _Entries({**family.defaults, **entries, **text})
    if recurrent := {*own.get("layer_types", [])} - {"full_attention", "sliding_attention"}:
        raise KVSizeError(
            f"layer_types has {min(recurrent)}: a recurrent layer keeps a state per sequence, not KV "
            "per token"
        )
    count = own.number("num_hidden_layers", "n_layer")
    heads = own.number("num_attention_heads", "n_head")
    if latent := own.get("kv_lora_rank", 0):
        kind, kept, size = "MLA", 1, latent + own.number("qk_rope_head_dim")
    else:
        kv_heads = own.get("num_key_value_heads", heads)
        if own.get("multi_query") and not own.get("new_decoder_architecture"):
            kv_heads = 1
        kinds = {heads: "MHA", 1: "MQA"}
        kind, kept = kinds.get(kv_heads, "GQA"), 2 * kv_heads
        size = own.get("head_dim", 0) or own.number("hidden_size", "n_embd") // heads
    window = own.get("sliding_window", 0)
    sliding = _sliding(own, family, count) if window else 0
    own_kv = count - own.get("num_kv_shared_layers", 0)
    if own_kv < count or own.get("global_head_dim") or own.get("num_global_key_value_heads"):
        raise KVSizeError(
            "num_kv_shared_layers and heads that differ by layer (Gemma 4) are not supported; "
            "`underglass serve --model ... --dry-run` states their memory"
        )
    kinds_of_layers = KVLayers(sliding, kept, size, window), KVLayers(count - sliding, kept, size)
    parameters, weights = _weights(own, count, heads, size)
    return KVSizes(
        kind=kind,
        layers=tuple(one for one in kinds_of_layers if one.layers),
        max_context=own.number("max_position_embeddings", "n_positions"),
        parameters=parameters,
        weights=weights,
    )


class _Entries:
    """The entries of a config.json, of which null ones count as missing."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries

    def get(self, name: str, default: Any = None) -> Any:
        value = self._entries.get(name)
        return default if value is None else value

    def number(self, *names: str) -> int:
        """Return the first entry that is present. Raises KVSizeError if none is a positive number."""
        value = next((self.get(name) for name in names if self.get(name) is not None), None)
        if not isinstance(value, int) or value < 1:
            is_wrong = "is missing" if value is None else f"must be at least 1, got {value!r}"
            raise KVSizeError(f"{names[0]} {is_wrong}")
        return value


def _sliding(own: _Entries, family: Family, count: int) -> int:
    """Return the number of layers with a window; see `Family.windowed`."""
    rule = family.windowed
    if rule is None or not own.get("use_sliding_window", True):
        return 0
    if rule == "all":
        return count
    if kinds := own.get("layer_types"):
        return sum(kind == "sliding_attention" for kind in kinds)
    if rule == "max_window_layers":
        first: int = own.get("max_window_layers", 0)
        return max(0, count - first)
    if rule == "no_rope_layers":
        interval = own.get("no_rope_layer_interval", 0)
        rotates = own.get("no_rope_layers") or [
            interval < 1 or (layer + 1) % interval for layer in range(count)
        ]
        return sum(not one for one in rotates)
    pattern: int = max(own.get("sliding_window_pattern", 1), 1)
    return count - count // pattern


def _weights(own: _Entries, layers: int, heads: int, size: int) -> tuple[int, float]:
    """Return the number of parameters and their bytes, without norms and biases."""
    hidden = own.number("hidden_size", "n_embd")
    if latent := own.get("kv_lora_rank", 0):
        rope, plain = own.number("qk_rope_head_dim"), own.number("qk_nope_head_dim")
        value, rank = own.number("v_head_dim"), own.get("q_lora_rank", 0)
        queries = (
            rank * (hidden + heads * (plain + rope)) if rank else hidden * heads * (plain + rope)
        )
        attention = queries + hidden * (latent + rope)
        attention += latent * heads * (plain + value) + heads * value * hidden
    else:
        kv_heads = own.get("num_key_value_heads", heads)
        if own.get("multi_query") and not own.get("new_decoder_architecture"):
            kv_heads = 1
        attention = 2 * hidden * size * (heads + kv_heads)
    # GPT-2 and Falcon have no gate, and a network four times as wide as the model.
    gated = own.get("intermediate_size") is not None
    dense = 3 * hidden * own.number("intermediate_size") if gated else 8 * hidden**2
    experts = (
        own.get("n_routed_experts") or own.get("num_local_experts") or own.get("num_experts", 0)
    )
    inner = own.get("moe_intermediate_size") or own.get("intermediate_size", 0)
    in_experts = sparse = 0
    if experts:
        sparse = layers - own.get("first_k_dense_replace", 0) - len(own.get("mlp_only_layers", []))
        in_experts = sparse * 3 * hidden * inner * experts
    shared = 3 * hidden * inner * own.get("n_shared_experts", 0) + hidden * experts
    others = layers * attention + (layers - sparse) * dense + sparse * shared
    # Embeddings, those of positions included; most models have a second matrix for the output.
    tied = own.get("tie_word_embeddings", "n_embd" in own._entries)
    embeddings = hidden * (
        own.number("vocab_size") * (1 if tied else 2) + own.get("n_positions", 0)
    )
    method = (own.get("quantization_config") or {}).get("quant_method")
    if method not in (None, "fp8", "mxfp4"):
        raise KVSizeError(f"quant_method {method!r} is not supported, only fp8 and mxfp4")
    stored = _VALUE_BYTES.get(own.get("dtype") or own.get("torch_dtype", "bfloat16"), 2)
    expert_bytes: float = {"fp8": 1, "mxfp4": _MXFP4_BYTES}.get(method or "", stored)
    other_bytes = 1 if method == "fp8" else stored
    weights = in_experts * expert_bytes + others * other_bytes + embeddings * stored
    return in_experts + others + embeddings, weights
