"""Tiny models of each architecture in GGUF files, written by llama.cpp's own converter.

The files and the logits of the models before they were converted, by transformers and by llama.cpp,
are in `tests/fixtures/gguf/converted`, so the tests need no llama.cpp. To make them again, with
llama-cpp-python installed and llama.cpp's source at hand:

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

from tests.engine.compute.gguf_fixtures import NUM_LOGITS, llama_cpp_logits
from tests.engine.compute.judge import PROMPT, reference_logits
from tests.engine.compute.models import spread_out
from tests.engine.text.conftest import SPECIAL, byte_level_bpe
from tests.lazy import transformers

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "gguf" / "converted"
LOGITS = DIRECTORY / "logits.npz"
_SIZES = dict(
    vocab_size=401,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=128,
    rms_norm_eps=0.0025,
    bos_token_id=0,
    eos_token_id=4,
    pad_token_id=None,
    tie_word_embeddings=True,
)


def _factors(first):
    return [first + 0.25 * i for i in range(6)]


# What `general.architecture` will be -> the model before it is converted.
MODELS = {
    # The sixth layer sees everything, which is not in the file.
    "gemma3": lambda: transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(
            **_SIZES | {"num_hidden_layers": 6, "head_dim": 16, "intermediate_size": 32},
            sliding_window=8,
            query_pre_attn_scalar=16,
            rope_theta=5e3,
            rope_local_base_freq=100.0,
            rope_scaling={"rope_type": "linear", "factor": 4.0},
        )
    ),
    "phi3": lambda: transformers.Phi3ForCausalLM(
        transformers.Phi3Config(
            **_SIZES,
            partial_rotary_factor=0.75,
            original_max_position_embeddings=32,
            rope_scaling={
                "type": "longrope",
                "short_factor": _factors(1.0),
                "long_factor": _factors(1.5),
            },
        )
    ),
    # The fourth layer rotates nothing, which is not in the file either.
    "smollm3": lambda: transformers.SmolLM3ForCausalLM(
        transformers.SmolLM3Config(**_SIZES | {"num_hidden_layers": 4}, rope_theta=5e3)
    ),
    "olmo2": lambda: transformers.Olmo2ForCausalLM(
        transformers.Olmo2Config(**_SIZES | {"tie_word_embeddings": False}, rope_theta=5e3)
    ),
    "qwen3moe": lambda: transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(
            **_SIZES,
            head_dim=16,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            norm_topk_prob=True,
            rope_theta=5e3,
        )
    ),
}


def file_of(architecture):
    return DIRECTORY / f"{architecture}.gguf"


def _model(architecture):
    torch.manual_seed(7)
    model = spread_out(MODELS[architecture]().eval())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    return model


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
    """Write all files and logits."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    recorded = {}
    for name in MODELS:
        model, file = _model(name), file_of(name)
        with tempfile.TemporaryDirectory() as directory:
            model.save_pretrained(directory)
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
