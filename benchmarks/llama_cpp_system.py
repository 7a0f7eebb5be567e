"""llama.cpp on the same weights, driven through its own batch interface.

llama-cpp-python's high-level classes serve one sequence. llama.cpp's server uses `llama_batch` with
many sequence ids, so that is measured here. Arrays are filled and logits read through numpy: Python
costs a few microseconds per step.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

INSTALL = (
    "llama.cpp is not installed: `make bench` builds it (a few minutes, needs a C++ compiler), or "
    ".venv/bin/pip install llama-cpp-python"
)


class LlamaCpp:
    """llama.cpp with a model's file, and a slot for each of `sequences` of at most `length` tokens.

    The KV cache is in F16, in one buffer for all sequences.
    """

    def __init__(self, file: Path, sequences: int, length: int, *, threads: int) -> None:
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
        params.kv_unified = True
        params.type_k = params.type_v = gguf.GGMLQuantizationType.F16.value
        params.no_perf = True
        self._context = api.llama_init_from_model(self._model, params)
        assert self._context, f"llama.cpp refuses {params.n_ctx} tokens of KV cache"
        self._memory = api.llama_get_memory(self._context)
        self._batch = api.llama_batch_init(params.n_batch, 0, 1)
        self._size = params.n_batch
        self._vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._arrays = {
            name: np.ctypeslib.as_array(getattr(self._batch, name), (self._size,))
            for name in ("token", "pos", "n_seq_id", "logits")
        }
        self._arrays["n_seq_id"][:] = 1

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
