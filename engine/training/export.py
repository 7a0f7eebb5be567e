"""Export: write the trained model as an ordinary Hugging Face directory.

Everything that reads Hugging Face models can load it: ``transformers``, vLLM, and the loader in
``engine.compute``. There, the architecture is called Qwen3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from engine.training import documents
from engine.training.documents import SPECIAL_TOKENS
from engine.training.model import Model, ModelConfig

BOS_ID = SPECIAL_TOKENS.index(documents.BOS)
END_ID = SPECIAL_TOKENS.index(documents.ASSISTANT_END)

# A generation ends with the answer, or where the model begins another document.
GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": BOS_ID,
    "eos_token_id": [END_ID, BOS_ID],
    "pad_token_id": END_ID,
    "do_sample": False,
}
# nanochat's conversation: a system message is put before the first user message. A calculator
# call in an earlier answer is passed as text and encoded as special tokens.
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
    weights = {name: tensor.detach().half() for name, tensor in model.state_dict().items()}
    tokenizer.encode_special_tokens = False
    configs = {
        "config.json": model_config(model.config),
        "generation_config.json": GENERATION_CONFIG,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": documents.BOS,
            "eos_token": documents.ASSISTANT_END,
            "pad_token": documents.ASSISTANT_END,
            "clean_up_tokenization_spaces": False,
            "model_max_length": model.config.max_position_embeddings,
        },
    }
    write_directory(out_dir, weights, tokenizer, configs)
    (out_dir / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def write_directory(
    directory: Path,
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    configs: Mapping[str, dict[str, Any]],
) -> None:
    """Write model.safetensors, tokenizer.json, and each of ``configs`` as a JSON file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "model.safetensors"
    tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable only by its owner
    tokenizer.save(str(directory / "tokenizer.json"))
    for name, content in configs.items():
        (directory / name).write_text(json.dumps(content, indent=2) + "\n")


def model_config(config: ModelConfig) -> dict[str, Any]:
    """Return ``config.json`` with the names of ``transformers.Qwen3Config``."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **asdict(config),
        "hidden_act": "silu",
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
    """Read the sizes of an exported model."""
    stored = json.loads((directory / "config.json").read_text())
    return ModelConfig(**{field.name: stored[field.name] for field in fields(ModelConfig)})
