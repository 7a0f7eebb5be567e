"""The differences between the supported architectures.

All of them are Llama decoders, with a few switches per family. `decoder.py` and `config.py` read the
switches and never compare names. SmolLM is a Llama model; its special features (tied embeddings, few KV
heads) are entries of its config.json.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One Llama-style architecture.

    qkv_bias  queries, keys and values have a bias (Qwen2, arXiv:2407.10671)
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
