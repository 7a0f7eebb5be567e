"""What sets the supported architectures apart.

A Llama decoder is the common ground; each family is a few switches on it, and `decoder.py` and
`model_config.py` ask for switches, never for names. SmolLM is a Llama by name and by nature: what is
particular about it (tied embeddings, few key heads) stands in its config.json.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture of the Llama kind.

    qkv_bias  queries, keys and values get a bias (Qwen2, arXiv:2407.10671)
    qk_norm   each head of queries and keys is normalised before it is rotated (Qwen3,
              arXiv:2505.09388)
    window    config.json may limit attention to the last `sliding_window` tokens (Mistral,
              arXiv:2310.06825)
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    window: bool = False


FAMILIES = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(window=True),
    "Qwen2ForCausalLM": Family(qkv_bias=True),
    "Qwen3ForCausalLM": Family(qk_norm=True),
}
