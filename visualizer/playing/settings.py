"""The settings that the playground offers: their labels, explanations, ranges and choices.

The controls in a notebook and on the site are both built from them.
"""

from typing import Any

from visualizer.playing.rerun import POLICY_NAMES

ENGINE = {
    "token_budget": ("token budget", "maximum tokens per step, over all requests"),
    "max_batch_size": ("batch size", "maximum number of running requests"),
    "max_kv_tokens": ("memory", "number of token slots in KV memory"),
    "block_size": ("block size", "number of token slots in a KV block"),
    "policy": ("policy", "order of the waiting queue"),
    "batching": ("batching", "static: no request joins until the whole batch has finished"),
    "chunked_prefill": ("chunked prefill", "split long prompts to fit into the token budget"),
    "admission": ("admission", "admit a request if all its tokens fit, or if its first chunk fits"),
    "prefix_cache": ("prefix cache", "keep blocks for later requests, like SGLang or like vLLM"),
    "preemption": (
        "preemption",
        "admit requests without reserving memory for their whole output",
    ),
}
TRAFFIC = {
    "requests": ("requests", "number of requests"),
    "rate": ("arrival rate", "average number of requests per second"),
    "prompt_tokens": ("prompt length", "average number of prompt tokens"),
    "output_tokens": ("output length", "average number of output tokens"),
    "shared": ("shared prefix", "prefix that all prompts share, in percent of the average prompt"),
    "seed": ("seed", "random seed of the traffic"),
}
RUNS_ON = {"model": ("runs on", "the simulated machine is fast; the model generates real text")}

TITLES = ENGINE | TRAFFIC | RUNS_ON  # setting -> (label, explanation)
NAMES = {name: label for name, (label, _) in TITLES.items()}

RANGES = {  # minimum, maximum, step
    "token_budget": (4, 256, 1),
    "max_batch_size": (1, 32, 1),
    "max_kv_tokens": (64, 2048, 8),
    "requests": (1, 60, 1),
    "rate": (1, 200, 1),
    "prompt_tokens": (1, 200, 1),
    "output_tokens": (1, 120, 1),
    "shared": (0, 100, 5),
}
CHOICES: dict[str, list[tuple[str, Any]]] = {
    "block_size": [(str(size), size) for size in (1, 2, 4, 8, 16, 32)],
    "policy": [(name, name) for name in POLICY_NAMES],
    "batching": [("continuous", "continuous"), ("static", "static")],
    "admission": [("whole sequence", "whole"), ("first chunk", "first_chunk")],
    "prefix_cache": [("radix tree", "radix"), ("hashed blocks", "hash"), ("off", "off")],
    "model": [("a simulated machine", False), ("the bundled model", True)],
}
