"""llama.cpp on the same weights, driven through its own batch interface.

llama-cpp-python's high-level classes serve one sequence. llama.cpp's server uses `llama_batch` with
many sequence ids, so that is measured here. Arrays are filled and logits read through numpy: Python
costs a few microseconds per step.
"""

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from engine.models.loader import BUNDLED

INSTALL = (
    "llama.cpp is not installed: `make bench` builds it (a few minutes, needs a C++ compiler), or "
    ".venv/bin/pip install llama-cpp-python"
)


def write_gguf(file: Path, kind: gguf.GGMLQuantizationType) -> None:
    """The bundled model as a GGUF file, matrices in `kind`, as llama.cpp's converter writes Qwen3."""
    config = json.loads((BUNDLED / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, config["vocab_size"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, data in load_file(BUNDLED / "model.safetensors").items():
        kept = gguf.GGMLQuantizationType.F32 if data.ndim == 1 else kind
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight",)),
            gguf.quants.quantize(data.astype(np.float32), kept),
            raw_dtype=kept,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, size: int) -> None:
    """llama.cpp loads no model without one; the benchmark itself passes token ids."""
    tokenizer = json.loads((BUNDLED / "tokenizer.json").read_text())
    by_id = {id_: token for token, id_ in tokenizer["model"]["vocab"].items()}
    special = {one["id"]: one["content"] for one in tokenizer["added_tokens"]}
    tokens = [special.get(id_) or by_id.get(id_) or f"<unused {id_}>" for id_ in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if id_ in special else 1 for id_ in range(size)])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(4)


class LlamaCpp:
    """llama.cpp with a slot for each of `sequences`.

    file       the model
    kind       "F16" or "F32": the KV cache
    unified    one KV buffer for all sequences, or one for each
    sequences  the most at once, of `length` tokens each
    """

    def __init__(
        self,
        file: Path,
        kind: str,
        unified: bool,
        sequences: int,
        length: int,
        *,
        threads: int = 1,
    ) -> None:
        import llama_cpp

        self._api = api = llama_cpp
        self._quiet = api.llama_log_callback(lambda *_: None)
        api.llama_log_set(self._quiet, ctypes.c_void_p())
        model_params = api.llama_model_default_params()
        self._model = api.llama_model_load_from_file(str(file).encode(), model_params)
        params = api.llama_context_default_params()
        params.n_ctx = sequences * length
        params.n_batch = params.n_ubatch = 2048
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = unified
        params.type_k = params.type_v = gguf.GGMLQuantizationType[kind].value
        params.no_perf = True
        self._context = api.llama_init_from_model(self._model, params)
        assert self._context, f"llama.cpp refuses {params.n_ctx} tokens of {kind} cache"
        self._memory = api.llama_get_memory(self._context)
        self._batch = api.llama_batch_init(params.n_batch, 0, 1)
        self._size = params.n_batch
        self._vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._arrays = {
            name: np.ctypeslib.as_array(getattr(self._batch, name), (self._size,))
            for name in ("token", "pos", "n_seq_id", "logits")
        }
        self._arrays["n_seq_id"][:] = 1
        self.settings = (
            f"batches through llama_batch, {file.stem}, {kind} KV cache, "
            f"{'one KV buffer for all sequences' if unified else 'a KV buffer for each sequence'}, "
            f"flash attention chosen by itself, threads: {threads}"
        )

    def run(self, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        """Output tokens of each prompt, all prompts and outputs of the same length."""
        self.start(prompts)
        outputs = [self._tokens]
        for _ in range(1, max_tokens):
            self.step()
            outputs.append(self._tokens)
        return np.stack(outputs, axis=1).tolist()

    def start(self, prompts: Sequence[list[int]]) -> None:
        """Compute prompts of the same length, and the first token of each."""
        count, length = len(prompts), len(prompts[0])
        self._api.llama_memory_clear(self._memory, False)
        self._tokens, self._length = np.empty(count, np.int32), length
        group = max(1, self._size // length)  # whole prompts that fit into a batch
        for first in range(0, count, group):
            part = np.array(prompts[first : first + group], np.int32)
            sequences = np.repeat(np.arange(first, first + len(part)), length)
            positions = np.tile(np.arange(length), len(part))
            self._tokens[first : first + len(part)] = self._decode(
                part.ravel(), positions, sequences, positions == length - 1
            )

    def step(self) -> None:
        """Compute the next token of each sequence."""
        count = len(self._tokens)
        positions, sequences = np.full(count, self._length), np.arange(count)
        self._tokens = self._decode(self._tokens, positions, sequences, np.ones(count, bool))
        self._length += 1

    def close(self) -> None:
        """Free the model and its KV cache."""
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def _decode(
        self, tokens: np.ndarray, positions: np.ndarray, sequences: np.ndarray, wanted: np.ndarray
    ) -> np.ndarray:
        """One forward pass; the likeliest next token where `wanted` is set."""
        count = len(tokens)
        self._batch.n_tokens = count
        self._arrays["token"][:count] = tokens
        self._arrays["pos"][:count] = positions
        self._arrays["logits"][:count] = wanted
        for place, sequence in enumerate(sequences.tolist()):
            self._batch.seq_id[place][0] = sequence
        status = self._api.llama_decode(self._context, self._batch)
        assert status == 0, f"llama_decode: {status}"
        logits = self._api.llama_get_logits(self._context)
        shape = (int(wanted.sum()), self._vocab)
        return np.ctypeslib.as_array(logits, shape).argmax(axis=1)
