"""A Llama-style decoder over a flat batch of tokens.

Per layer: norm, attention, add; norm, feed-forward, add. Some families have their norms elsewhere;
`families.py` lists how they differ. Tokens interact only in attention (`attention_block.py`).

Sources: Llama 2, arXiv:2307.09288. The names of the weights are those of transformers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.core.compute.device import activation_dtype
from engine.core.compute.model import Attend
from engine.models.attention_block import Attention, Rotation
from engine.models.config import LlamaConfig
from engine.models.layers import Embedding, FeedForward, Linear, RMSNorm, load_norm
from engine.models.memory import InMemory
from engine.models.moe import MixtureOfExperts
from engine.models.rope import rotary_table
from engine.models.weights.checkpoint import Checkpoint


class Layer:
    """One decoder layer, which updates the residual stream in place."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: Checkpoint,
        prefix: str,
        index: int,
        rotation: int | None,
    ) -> None:
        def norm(name: str | None) -> RMSNorm | None:
            if name is None:
                return None
            return load_norm(config, weights, f"{prefix}.{name}.weight", config.hidden_size)

        names = config.family.norms
        self._before_attention = norm(names.before_attention)
        self._attention = Attention(config, weights, f"{prefix}.self_attn", index, rotation)
        self._after_attention = norm(names.after_attention)
        self._before_feed_forward = norm(names.before_feed_forward)
        network = MixtureOfExperts if config.sparse_layers[index] else FeedForward
        self.feed_forward: FeedForward | MixtureOfExperts = network(
            config, weights, f"{prefix}.mlp"
        )
        self._after_feed_forward = norm(names.after_feed_forward)

    def forward(self, x: Tensor, rotations: Sequence[Rotation], attend: Attend) -> None:
        """Add attention and feed-forward to `x` [tokens, hidden]."""
        attended = self._attention(_apply(self._before_attention, x), rotations, attend)
        x.add_(_apply(self._after_attention, attended))
        fed = self.feed_forward(_apply(self._before_feed_forward, x))
        x.add_(_apply(self._after_feed_forward, fed))


def _apply(norm: RMSNorm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


class Decoder(InMemory):
    """A decoder with its weights.

    fingerprint  of the weights and, after `prepare`, of the rotary frequencies: equal fingerprints
                 compute equal keys and values
    expert_loads how many tokens each expert computed in the latest `forward`; see `Runner`

    Raises CheckpointError if the weights do not match the configuration.
    """

    config: LlamaConfig

    def __init__(self, config: LlamaConfig, weights: Checkpoint) -> None:
        self.config = config
        self.dtype, self.device = weights.dtype, weights.device
        self._activations = activation_dtype(self.dtype, self.device)
        prefix = config.family.text_prefix
        weights.ignore_others(prefix)
        rows = {f"{prefix}model.embed_tokens.weight": config.vocab_size}
        self._embedding = Embedding(weights.load_matrix(rows, config.hidden_size))
        self._embedding_scale = 1.0
        if config.family.scaled_embedding:
            # transformers rounds the factor to the model's precision, and so do the trained weights.
            scale = torch.tensor(config.hidden_size**0.5).to(self.dtype)
            self._embedding_scale = float(scale)
        # Layers that rotate alike share a table.
        self._ropes = list(dict.fromkeys(rope for rope in config.ropes if rope is not None))
        self._layers = [
            Layer(
                config,
                weights,
                f"{prefix}model.layers.{index}",
                index,
                None if rope is None else self._ropes.index(rope),
            )
            for index, rope in enumerate(config.ropes)
        ]
        name = f"{prefix}model.norm.weight"
        self._norm = load_norm(config, weights, name, config.hidden_size)
        name = f"{prefix}lm_head.weight"
        embedding, tied = self._embedding.weight, config.tied_embeddings
        self._lm_head = Linear(weights.load_lm_head(embedding, tied=tied, name=name))
        weights.check_all_loaded()
        self.num_parameters = weights.num_parameters
        self.weight_bytes = weights.weight_bytes()
        self._weights_fingerprint = weights.fingerprint
        self.fingerprint = weights.fingerprint.hexdigest()
        self._tables: list[Tensor] = []
        self.expert_loads: list[list[int]] = []

    def prepare(self, positions: int) -> None:
        """Precompute the rotary tables for this many positions. Must be called before `forward`."""
        tables = [rotary_table(rope, positions) for rope in self._ropes]
        fingerprint = self._weights_fingerprint.copy()
        for table in tables:
            fingerprint.update(table[:2].numpy().tobytes())
        self.fingerprint = fingerprint.hexdigest()
        self._tables = [table.to(self.device, self._activations) for table in tables]

    def forward(
        self, token_ids: Tensor, positions: Tensor, attend: Attend, logits_indices: Tensor
    ) -> Tensor:
        """Return the logits after each token of `logits_indices`: float32 [logits, vocab].

        token_ids, positions  [tokens]
        attend                attention over each token's own context
        logits_indices        [logits] indexes into the flat batch
        """
        x = self._embedding(token_ids).to(self._activations)
        if self._embedding_scale != 1.0:
            x.mul_(self._embedding_scale)
        rotations = [
            Rotation(*table.index_select(0, positions)[:, :, None].unbind(dim=1))
            for table in self._tables
        ]
        for layer in self._layers:
            layer.forward(x, rotations, attend)
        if self.config.num_experts:
            networks = [layer.feed_forward for layer in self._layers]
            self.expert_loads = [getattr(network, "loads", []) for network in networks]
        return self._lm_head(self._norm(x.index_select(0, logits_indices))).float()
