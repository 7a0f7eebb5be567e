"""Multi-head latent attention: a token keeps one vector, from which each head makes its key and value.

    c = norm(W_a x)              the latent vector, `kv_lora_rank` values
    k_r = rotate(W_r x)          one rotated key, `qk_rope_head_dim` values, shared by all heads
    key of head h    = [U_h c | k_r]
    value of head h  = V_h c

Only [c | k_r] is kept. The product of a query and the key, q_n (U_h c) + q_r k_r, is (U_h^T q_n) c +
q_r k_r. So U_h is multiplied with the query once, and attention reads the latent vectors as they are:
keys of one KV head that all query heads share, as in MQA. The values are the first `kv_lora_rank`
values of the same vectors, and V_h is multiplied with the sum of latent vectors that attention returns.
The two matrices are said to be absorbed. KV memory has one part per token, not two
(`ModelConfig.kv_parts`).

Sources: DeepSeek-V2, arXiv:2405.04434; `modeling_deepseek_v2.py` and `modeling_deepseek_v3.py` in
transformers, which cache the latent vectors too and expand them to keys and values in every step.

Differs from vLLM (`vllm/model_executor/layers/attention/mla_attention.py`), which absorbs the matrices
for decoding only. For a long prompt, expanding costs less arithmetic: a product with a key takes
`qk_nope_head_dim + qk_rope_head_dim` values per head, here `kv_lora_rank + qk_rope_head_dim`.

Mixtures of experts with DeepSeek's router are not supported; a configuration that has one is rejected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import torch
from torch import Tensor

from engine.core.compute.model import Attend
from engine.models.config import LlamaConfig, check_entries
from engine.models.config_llama import read_llama
from engine.models.decoder import Attention, Decoder, Layer, Rotation, rotate
from engine.models.layers import Linear, RMSNorm
from engine.models.weights.checkpoint import Checkpoint, CheckpointError

MLA = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")
_LATENT_EPS = 1e-6  # of the norms of latent vectors, whatever rms_norm_eps says


@dataclass(frozen=True, slots=True, kw_only=True)
class MLAConfig(LlamaConfig):
    """The configuration of a decoder with latent attention; sizes are per head.

    num_kv_heads, head_dim  one head, with the values that a token keeps: latent and rotated
    latent       size of the latent vector
    rotated      rotated values of queries and keys
    plain        the other values of queries and keys
    value        size of values
    query_rank   size of the vector that queries are made of; 0: of the residual stream
    interleaved  rotated pairs are neighbours in the file's matrices
    """

    latent: int
    rotated: int
    plain: int
    value: int
    query_rank: int
    interleaved: bool


class _MLAFile(msgspec.Struct):
    """The entries of config.json that are read in addition."""

    num_hidden_layers: int
    num_attention_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    rope_interleave: bool = True
    first_k_dense_replace: int = 0
    attention_bias: bool = False


def read_mla(architecture: str, entries: dict[str, Any]) -> MLAConfig:
    """Convert the entries of a config.json; see `parse_config`."""
    file = msgspec.convert(entries, _MLAFile)
    for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"):
        if getattr(file, name) < 1:
            raise CheckpointError(f"{name} must be at least 1, got {getattr(file, name)}")
    check_entries(("attention_bias", file.attention_bias, False))
    if file.first_k_dense_replace < file.num_hidden_layers:
        raise CheckpointError(
            f"first_k_dense_replace = {file.first_k_dense_replace} of {file.num_hidden_layers} layers: "
            "DeepSeek's mixture of experts is not supported, only models whose layers are all dense"
        )
    rotated, plain, latent = file.qk_rope_head_dim, file.qk_nope_head_dim, file.kv_lora_rank
    # Only the rotated values are a head for the rotary embedding. No layer has experts.
    others = {name: value for name, value in entries.items() if "expert" not in name}
    others |= {"head_dim": rotated, "num_key_value_heads": 1, "norm_topk_prob": False}
    base = read_llama(architecture, others)
    given = {field.name: getattr(base, field.name) for field in fields(base)}
    # Attention divides by the square root of what a token keeps.
    scale = math.sqrt((latent + rotated) / (plain + rotated)) * _yarn_scale(entries)
    return MLAConfig(
        **given
        | {"head_dim": latent + rotated, "num_kv_heads": 1, "kv_parts": 1, "query_scale": scale},
        latent=latent,
        rotated=rotated,
        plain=plain,
        value=file.v_head_dim,
        query_rank=file.q_lora_rank or 0,
        interleaved=file.rope_interleave,
    )


def _yarn_scale(entries: dict[str, Any]) -> float:
    """Return the factor of scores that YaRN adds with `mscale_all_dim`."""
    rope = entries.get("rope_scaling") or entries.get("rope_parameters") or {}
    mscale, factor = rope.get("mscale_all_dim", 0), rope.get("factor", 1)
    if not mscale or factor <= 1:
        return 1.0
    return float(0.1 * mscale * math.log(factor) + 1.0) ** 2


class LatentAttention(Attention):
    """Self-attention of one layer over latent vectors; see above."""

    def __init__(
        self,
        config: MLAConfig,
        weights: Checkpoint,
        prefix: str,
        layer: int,
        rotation: int | None,
    ) -> None:
        assert rotation is not None
        self._layer, self._table, self._scale = layer, rotation, config.query_scale
        hidden, heads, latent = config.hidden_size, config.num_heads, config.latent
        self._latent, self._plain = latent, config.plain
        per_query, kept = config.plain + config.rotated, latent + config.rotated
        self._queries = (-1, heads, per_query)
        # Rows of rotated values in the order that `rotate` pairs: all first ones, then all second ones.
        order = torch.arange(config.rotated)
        if config.interleaved:
            order = torch.cat((order[::2], order[1::2]))
        of_query = torch.cat((torch.arange(config.plain), config.plain + order))
        of_key = torch.cat((torch.arange(latent), latent + order))

        def loaded(name: str, rows: int, columns: int, ordered: Tensor) -> Linear:
            matrix = weights.load(f"{prefix}.{name}.weight", rows, columns)
            parts = matrix.view(-1, len(ordered), columns)
            return Linear(parts[:, ordered.to(matrix.device)].reshape(rows, columns))

        self._compress: tuple[Linear, RMSNorm] | None = None
        if rank := config.query_rank:
            compress = weights.load(f"{prefix}.q_a_proj.weight", rank, hidden)
            norm = weights.load(f"{prefix}.q_a_layernorm.weight", rank)
            self._compress = Linear(compress), RMSNorm(norm, _LATENT_EPS)
        name = "q_b_proj" if rank else "q_proj"
        self._query = loaded(name, heads * per_query, rank or hidden, of_query)
        self._kept = loaded("kv_a_proj_with_mqa", kept, hidden, of_key)
        norm = weights.load(f"{prefix}.kv_a_layernorm.weight", latent)
        self._norm = RMSNorm(norm, _LATENT_EPS)
        rows = config.plain + config.value
        expand = weights.load(f"{prefix}.kv_b_proj.weight", heads * rows, latent)
        expand = expand.view(heads, rows, latent)
        self._to_key, self._to_value = expand[:, : config.plain], expand[:, config.plain :]
        output = weights.load(f"{prefix}.o_proj.weight", hidden, heads * config.value)
        self._output = Linear(output)

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], attend: Attend) -> Tensor:
        """Return the network's output for `x` [tokens, hidden]: the same shape."""
        latent, rotation = self._latent, rotations[self._table]
        compressed = x
        if self._compress is not None:
            down, norm = self._compress
            compressed = norm(down(x))
        queries = self._query(compressed).view(self._queries)
        kept = self._kept(x)[:, None]  # [tokens, 1, latent and rotated]
        kept[..., :latent] = self._norm(kept[..., :latent])
        for rotated in (queries[..., self._plain :], kept[..., latent:]):
            rotate(rotated, rotation, out=rotated)
        to_key, to_value = self._to_key.to(x.dtype), self._to_value.to(x.dtype)
        absorbed = torch.einsum("thn,hnl->thl", queries[..., : self._plain], to_key)
        absorbed = torch.cat((absorbed, queries[..., self._plain :]), dim=-1).mul_(self._scale)
        sums = attend(self._layer, absorbed, kept).view(absorbed.shape)[..., :latent]
        return self._output(torch.einsum("thl,hvl->thv", sums, to_value).flatten(1))


class _LatentLayer(Layer):
    attention_kind = LatentAttention


class LatentDecoder(Decoder):
    """A decoder whose layers have latent attention."""

    config: MLAConfig
    layer_kind = _LatentLayer
