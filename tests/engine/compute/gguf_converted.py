"""Tiny models of each architecture in GGUF files, written by llama.cpp's own converter.

The files and the logits of the models before they were converted, by transformers and by llama.cpp,
are in `tests/fixtures/gguf/converted`, so the tests need no llama.cpp. To make them again, with
llama.cpp's source at hand:

    python -m tests.engine.compute.gguf_converted PATH_OF_LLAMA_CPP

Weights are random and can be stored as float16 without a loss. The converter looks tokenizers up in a
list of known ones. Ours is not on it, so the script answers in its place.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from tokenizers import normalizers

from tests.engine.compute.gguf_fixtures import NUM_LOGITS, llama_cpp_logits
from tests.engine.compute.judge import PROMPT, reference_logits
from tests.engine.compute.models import random_model, save_mxfp4
from tests.engine.text.conftest import SPECIAL, byte_level_bpe, sentencepiece_bpe
from tests.lazy import transformers

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "gguf" / "converted"
LOGITS = DIRECTORY / "logits.npz"
_SIZES = (
    dict(vocab_size=401, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    | dict(num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128)
    | dict(bos_token_id=0, eos_token_id=4, pad_token_id=None)
    | dict(rms_norm_eps=0.0025, tie_word_embeddings=True)
)


FACTORS = {
    f"{name}_factor": [first + 0.25 * i for i in range(6)]
    for name, first in (("short", 1.0), ("long", 1.5))
}


_YARN = dict(factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0)
_MINISTRAL3 = dict(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)

_KINDS = [f"{kind}_attention" for kind in ("sliding", "sliding", "full", "sliding", "full")]
GEMMA4 = _SIZES | dict(num_hidden_layers=5, layer_types=_KINDS, sliding_window=8, head_dim=16)
GEMMA4 |= dict(global_head_dim=32, num_key_value_heads=2, hidden_size_per_layer_input=0)
GEMMA4 |= dict(final_logit_softcapping=8.0)
# The fourth and the fifth layer read the KV of the two before them.
SHARED = dict(num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=16)
SHARED |= dict(vocab_size_per_layer_input=401)
EXPERTS = dict(num_experts=4, top_k_experts=2, moe_intermediate_size=16, enable_moe_block=True)
EXPERTS |= dict(attention_k_eq_v=True, num_global_key_value_heads=1)
# Name of the file -> the class of the model before it is converted, and its entries.
MODELS = {
    # The sixth layer sees everything, which is not in the file.
    "gemma3": (
        "Gemma3ForCausalLM",
        _SIZES
        | dict(num_hidden_layers=6, head_dim=16, intermediate_size=32, query_pre_attn_scalar=16)
        | dict(sliding_window=8, rope_theta=5e3, rope_local_base_freq=100.0)
        | dict(rope_scaling={"rope_type": "linear", "factor": 4.0}),
    ),
    "phi3": (
        "Phi3ForCausalLM",
        _SIZES
        | dict(partial_rotary_factor=0.75, original_max_position_embeddings=32)
        | dict(rope_scaling={"type": "longrope"} | FACTORS),
    ),
    # The fourth layer rotates nothing, which is not in the file either.
    "smollm3": ("SmolLM3ForCausalLM", _SIZES | dict(num_hidden_layers=4, rope_theta=5e3)),
    "olmo2": ("Olmo2ForCausalLM", _SIZES | dict(tie_word_embeddings=False, rope_theta=5e3)),
    # The third layer sees everything.
    "olmo3": (
        "Olmo3ForCausalLM",
        _SIZES
        | dict(num_hidden_layers=3, tie_word_embeddings=False, sliding_window=8)
        | dict(layer_types=["sliding_attention"] * 2 + ["full_attention"])
        | dict(rope_scaling={"rope_type": "yarn", "rope_theta": 500_000.0} | _YARN),
    ),
    "mistral3": (
        "Ministral3ForCausalLM",
        _SIZES
        | dict(head_dim=16)
        | dict(rope_parameters=dict(rope_type="yarn", rope_theta=5e3) | _YARN | _MINISTRAL3),
    ),
    "gemma4": ("Gemma4ForCausalLM", GEMMA4 | SHARED),
    "gemma4-moe": ("Gemma4ForCausalLM", GEMMA4 | EXPERTS),
    # llama.cpp rounds the ends of YaRN's ramp; with this rope_theta they are whole numbers anyway.
    "gpt-oss": (
        "GptOssForCausalLM",
        _SIZES
        | dict(head_dim=16, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2)
        | dict(sliding_window=8, tie_word_embeddings=False)
        | dict(rope_scaling=dict(rope_type="yarn", rope_theta=1770.0, truncate=False) | _YARN),
    ),
    "qwen3moe": (
        "Qwen3MoeForCausalLM",
        _SIZES
        | dict(head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
        | dict(norm_topk_prob=True, rope_theta=5e3),
    ),
}


def file_of(architecture):
    return DIRECTORY / f"{architecture}.gguf"


def _model(architecture):
    model = random_model(*MODELS[architecture])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    return model


def _add_gemma4(directory, entries):
    """Add Gemma's kind of tokenizer, and the entries whose names have changed since."""
    tokenizer = sentencepiece_bpe()
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Replace(" ", "▁"), None
    tokenizer.add_tokens([f"<unused{i}>" for i in range(401 - tokenizer.get_vocab_size())])
    special = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    kind = transformers.PreTrainedTokenizerFast
    kind(tokenizer_object=tokenizer, **special).save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | entries))


def _add_tokenizer(directory):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level_bpe())
    tokenizer.save_pretrained(directory)
    file = directory / "tokenizer_config.json"
    # Phi-3's converter reads any other class as SentencePiece.
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), SPECIAL[0])
    file.write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", **special}))


# Runs the converter with the `gguf` package of its own source.
_CONVERT = """
import sys
sys.path[:0] = [f"{sys.argv[1]}/gguf-py", sys.argv.pop(1)]
import convert_hf_to_gguf
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
convert_hf_to_gguf.main()
"""


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    recorded = {}
    for name in MODELS:
        model, file = _model(name), file_of(name)
        with tempfile.TemporaryDirectory() as directory:
            if name == "gpt-oss":
                save_mxfp4(Path(directory), model)
            else:
                model.save_pretrained(directory)
            if name.startswith("gemma4"):
                _add_gemma4(Path(directory), MODELS[name][1])
            else:
                _add_tokenizer(Path(directory))
            options = [directory, "--outtype", "f16", "--outfile", str(file)]
            command = [sys.executable, "-c", _CONVERT, sys.argv[1], *options]
            subprocess.run(command, check=True)
        recorded[name] = reference_logits(model, PROMPT)[-NUM_LOGITS:].numpy()
        recorded[f"{name}, llama.cpp"] = llama_cpp_logits(file)
        apart = np.abs(recorded[name] - recorded[f"{name}, llama.cpp"]).max()
        sys.stdout.write(f"{name}: {file.stat().st_size:,} bytes, {apart:.4f} from llama.cpp\n")
    np.savez_compressed(LOGITS, **recorded)


if __name__ == "__main__":
    main()
