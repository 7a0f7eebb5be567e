"""Export: write the trained model as an ordinary Hugging Face directory.

Everything that reads Hugging Face models can load it: ``transformers``, vLLM, and the loader in
`engine.core.compute`. There, the architecture is called Qwen3.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from engine.training.documents import ASSISTANT_END, BOS, IDS
from engine.training.model import Model, ModelConfig
from engine.training.words import DATA

# A generation ends with the answer, or where the model begins another document.
GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": IDS[BOS],
    "eos_token_id": [IDS[ASSISTANT_END], IDS[BOS]],
    "pad_token_id": IDS[ASSISTANT_END],
    "do_sample": False,
}
# nanochat's conversation: a system message is put before the first user message. A calculator
# call in an earlier answer is passed as text and encoded as special tokens.
CHAT_TEMPLATE = DATA / "chat_template.jinja"


def export(model: Model, tokenizer: Tokenizer, out_dir: Path) -> None:
    """Write weights (fp16), configuration, tokenizer and chat template to ``out_dir``."""
    weights = {name: tensor.detach().half() for name, tensor in model.state_dict().items()}
    tokenizer.encode_special_tokens = False
    configs = {
        "config.json": model_config(model.config),
        "generation_config.json": GENERATION_CONFIG,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": ASSISTANT_END,
            "pad_token": ASSISTANT_END,
            "clean_up_tokenization_spaces": False,
            "model_max_length": model.config.max_position_embeddings,
        },
    }
    write_directory(out_dir, weights, tokenizer, configs)
    shutil.copyfile(CHAT_TEMPLATE, out_dir / CHAT_TEMPLATE.name)


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
        "bos_token_id": IDS[BOS],
        "eos_token_id": IDS[ASSISTANT_END],
        "dtype": "float16",
        "torch_dtype": "float16",
    }
