"""Adapters that PEFT itself saves, over the bundled model, and what transformers computes with them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from engine.models.loader import BUNDLED
from tests.lazy import peft, transformers

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@cache
def base_model():
    """Return transformers' own bundled model. A test that adapts it unloads the adapter again."""
    return transformers.AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32)


def save_adapter(directory: Path, seed: int, **config) -> str:
    """Save an adapter with random matrices, large enough to change what the model says."""
    torch.manual_seed(seed)
    adapted = peft.get_peft_model(
        base_model(), peft.LoraConfig(**{"target_modules": ALL, "r": 8} | config)
    )
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.06)
    adapted.save_pretrained(directory)
    adapted.unload()
    return str(directory)


@torch.no_grad()
def peft_logits(path: str, tokens: Sequence[int], *, merged: bool) -> torch.Tensor:
    """Return the logits [tokens, vocab] of PEFT, with W + scaling * B A in place of W if `merged`."""
    if not path:
        return base_model()(torch.tensor([tokens])).logits[0]
    adapted = peft.PeftModel.from_pretrained(base_model(), path)
    if merged:
        adapted.merge_adapter()
    logits = adapted(torch.tensor([tokens])).logits[0]
    if merged:
        adapted.unmerge_adapter()
    adapted.unload()
    return logits
