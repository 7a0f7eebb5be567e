"""A mixture of experts: many small feed-forward networks per layer, of which each token uses a few.

    router     probabilities of all experts for each token, [tokens, experts]
    choice     the k likeliest experts of each token, with their probabilities as weights
    dispatch   copies of the tokens, sorted by expert
    experts    each expert that has tokens computes all of its own at once
    combine    the weighted sum of a token's k results

The model has the parameters of all its experts and does the arithmetic of k. All of them must fit in
memory, and a step reads the weights of every expert that any of its tokens uses. So a single token is
cheap, and a few tokens can cost nearly as much as many.

Sources: GShard, arXiv:2006.16668, and Switch Transformers, arXiv:2101.03961, for routing and dispatch;
the Qwen3 report, arXiv:2505.09388, and gpt-oss's, arXiv:2508.10925, whose models have no shared expert;
`Qwen3MoeSparseMoeBlock` and `GptOssMLP` in transformers.

Differs from vLLM (`vllm/model_executor/layers/fused_moe/`):

- There, one kernel multiplies the tokens of all experts, a grouped matrix product. Here a loop calls
  each expert's network, which is why the loads come to the CPU in every layer.
- No expert is duplicated because it is busy (vLLM's load balancer, `vllm/distributed/eplb/`).
- No token is dropped, as in vLLM. GShard and Switch give each expert a capacity and drop the rest.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.models.config import LlamaConfig
from engine.models.layers import ClampedFeedForward, FeedForward, Linear
from engine.models.weights.checkpoint import Checkpoint


class MixtureOfExperts:
    """The experts of a layer and their router; takes the place of a `FeedForward`.

    Weights are under the name `prefix`: the router's `gate.weight` [experts, hidden], and one gated
    network for each expert, `experts.0` and so on. gpt-oss's router is `router`, with a bias, and its
    checkpoints stack the experts (`expert_tensors.py`). The router keeps the model's precision even if
    the experts are quantized, because a small error in it chooses another expert.

    experts  one network each
    loads    tokens that each expert computed in the latest call, [experts]. Each token counts k times
    """

    router_name = "gate"

    def __init__(self, config: LlamaConfig, weights: Checkpoint, prefix: str) -> None:
        self._per_token = config.experts_per_token
        self._renormalise = config.norm_topk_prob
        count, hidden = config.num_experts, config.hidden_size
        network = FeedForward
        if config.family.clamped_experts:
            network = ClampedFeedForward
            bias = weights.load(f"{prefix}.router.bias", count)
            self._router = Linear(weights.load(f"{prefix}.router.weight", count, hidden), bias)
        else:
            self._router = Linear(
                weights.load(f"{prefix}.{self.router_name}.weight", count, hidden)
            )
        self.experts: list[Callable[[Tensor], Tensor]] = [
            network(config, weights, f"{prefix}.experts.{expert}", config.expert_size)
            if expert in weights.experts
            else torch.zeros_like  # another device adds what it computes; see `engine/parallel`
            for expert in range(config.num_experts)
        ]
        self.loads = [0] * config.num_experts

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k experts of each token of `x` and their weights: both [tokens, k].

        The softmax is over all experts and in float32. `norm_topk_prob` says whether the k weights are
        then scaled to the sum 1, which is the softmax over the k experts that gpt-oss defines.
        """
        probs = self._router(x).float().softmax(dim=-1)
        weights, experts = probs.topk(self._per_token, dim=-1)
        if self._renormalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return experts, weights.to(x.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output for `x` [tokens, hidden]: the same shape."""
        return self.dispatch(x, *self.route(x))

    def dispatch(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of the results of each token's experts, both [tokens, k]."""
        order = experts.flatten().argsort(stable=True)  # of the (token, choice) pairs, by expert
        self.loads = torch.bincount(experts.flatten(), minlength=len(self.experts)).cpu().tolist()
        copies = x.index_select(0, order // self._per_token)
        results = self.compute(copies, self.loads)
        # Back in the order of the pairs. Each token adds its own results, so no two threads write to
        # one place and the sum does not depend on the rest of the batch.
        unsorted = torch.empty_like(copies).index_copy_(0, order, results)
        return weights.unsqueeze(1).bmm(unsorted.view(*experts.shape, x.shape[1])).squeeze(1)

    def compute(self, copies: Tensor, loads: list[int]) -> Tensor:
        """Return the experts' results for copies of tokens, sorted by expert; `loads` counts them."""
        results = [
            expert(own)
            for expert, own in zip(self.experts, copies.split_with_sizes(loads), strict=True)
            if len(own)
        ]
        return torch.cat(results) if results else copies
