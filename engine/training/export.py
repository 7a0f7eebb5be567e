"""Export: the trained model as an ordinary Hugging Face directory.

Anything that reads Hugging Face models can load it: ``transformers``, vLLM, and the loader in
``engine.compute``. Qwen3 is the architecture's name there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from engine.training import documents
from engine.training.documents import SPECIAL_TOKENS
from engine.training.model import Model, ModelConfig

BOS_ID = SPECIAL_TOKENS.index(documents.BOS)
END_ID = SPECIAL_TOKENS.index(documents.ASSISTANT_END)

# nanochat's conversation: a system message goes in front of the first user message. A calculator
# call in an earlier answer is written as text by the caller and read as special tokens.
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- set conversation = messages -%}
{%- set ahead = namespace(system='') -%}
{%- if messages and messages[0]['role'] == 'system' -%}
  {%- set ahead.system = messages[0]['content'] ~ '\\n\\n' -%}
  {%- set conversation = messages[1:] -%}
{%- endif -%}
{%- for message in conversation -%}
  {%- if message['role'] == 'user' -%}
    {{- '<|user_start|>' ~ ahead.system ~ message['content'] ~ '<|user_end|>' -}}
    {%- set ahead.system = '' -%}
  {%- elif message['role'] == 'assistant' -%}
    {{- '<|assistant_start|>' ~ message['content'] ~ '<|assistant_end|>' -}}
  {%- else -%}
    {{- raise_exception('role must be system (first only), user or assistant') -}}
  {%- endif -%}
{%- endfor -%}
{%- if ahead.system -%}
  {{- raise_exception('a system message needs a user message after it') -}}
{%- endif -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant_start|>' -}}
{%- endif -%}
"""


def export(model: Model, tokenizer: Tokenizer, out_dir: Path) -> None:
    """Write weights (fp16), configuration, tokenizer and chat template to ``out_dir``."""
    out_dir.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.detach().to("cpu", torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
    }
    path = out_dir / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors keeps it to its owner; a model is there to be read
    tokenizer.encode_special_tokens = False
    tokenizer.save(str(out_dir / "tokenizer.json"))
    (out_dir / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    for name, content in (
        ("config.json", model_config(model.config)),
        ("generation_config.json", GENERATION_CONFIG),
        ("tokenizer_config.json", tokenizer_config(model.config)),
    ):
        (out_dir / name).write_text(json.dumps(content, indent=2) + "\n")


def model_config(config: ModelConfig) -> dict[str, Any]:
    """``config.json`` in the words of ``transformers.Qwen3Config``."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": END_ID,
        "dtype": "float16",
        "torch_dtype": "float16",
    }


def read_config(directory: Path) -> ModelConfig:
    """The sizes of an exported model; the reverse of ``model_config``."""
    stored = json.loads((directory / "config.json").read_text())
    return ModelConfig(
        vocab_size=stored["vocab_size"],
        hidden_size=stored["hidden_size"],
        intermediate_size=stored["intermediate_size"],
        num_layers=stored["num_hidden_layers"],
        num_heads=stored["num_attention_heads"],
        num_kv_heads=stored["num_key_value_heads"],
        head_dim=stored["head_dim"],
        rope_theta=stored["rope_theta"],
        rms_norm_eps=stored["rms_norm_eps"],
        max_positions=stored["max_position_embeddings"],
    )


# A generation ends with the answer, or where the model begins another document.
GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": BOS_ID,
    "eos_token_id": [END_ID, BOS_ID],
    "pad_token_id": END_ID,
    "do_sample": False,
}


def tokenizer_config(config: ModelConfig) -> dict[str, Any]:
    """``tokenizer_config.json``; the tokenizer itself is in ``tokenizer.json``."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": documents.BOS,
        "eos_token": documents.ASSISTANT_END,
        "pad_token": documents.ASSISTANT_END,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.max_positions,
    }
