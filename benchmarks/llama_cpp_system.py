"""llama.cpp on the same weights, driven through its own batch interface as its server does.

`llama_batch` carries tokens of many sequences. Its arrays are filled and logits read through numpy, so
Python costs a few microseconds per step.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

from benchmarks.llama_cpp_library import library


class LlamaCpp:
    """llama.cpp with a model's file, and a slot for each of `sequences` of at most `length` tokens.

    exact  keep the KV cache in F32 instead of F16
    flash  use the kernel of flash attention, which llama.cpp does by itself; it is faster unless the
           heads are small, and rounds to F16

    Each sequence has a KV buffer of its own. With one for all, llama.cpp computes every sequence's
    scores for the tokens of all, which takes up to half of the speed at 32 sequences.
    """

    def __init__(
        self,
        file: Path,
        sequences: int,
        length: int,
        *,
        threads: int,
        exact: bool = False,
        flash: bool = True,
    ) -> None:
        self._api = api = library()
        model_params = api.llama_model_default_params()
        self._model = api.llama_model_load_from_file(str(file).encode(), model_params)
        assert self._model, f"llama.cpp refuses {file}"
        params = api.llama_context_default_params()
        params.n_ctx = sequences * length
        params.n_batch = params.n_ubatch = params.n_outputs_max_per_seq = 2048
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = False
        types = gguf.GGMLQuantizationType
        params.type_k = params.type_v = int(types.F32 if exact else types.F16)
        params.flash_attn_type = int(flash)
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
            ).argmax(axis=1)

    def step(self) -> None:
        """Compute the next token of each sequence."""
        count = len(self._tokens)
        positions, sequences = np.full(count, self._length), np.arange(count)
        self._tokens = self._decode(
            self._tokens, positions, sequences, np.ones(count, bool)
        ).argmax(axis=1)
        self._length += 1

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the logits after each token of one text, [tokens, vocabulary]."""
        self._api.llama_memory_clear(self._memory, False)
        count = len(tokens)
        sequences = np.zeros(count, np.int32)
        return self._decode(
            np.array(tokens), np.arange(count), sequences, np.ones(count, bool)
        ).copy()

    def close(self) -> None:
        """Free the model, its KV cache and the batch."""
        self._arrays.clear()
        self._api.llama_batch_free(self._batch)
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def _decode(
        self, tokens: np.ndarray, positions: np.ndarray, sequences: np.ndarray, wanted: np.ndarray
    ) -> np.ndarray:
        """Run one forward pass; return the logits where `wanted` is set, until the next pass."""
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
        return np.ctypeslib.as_array(logits, (int(wanted.sum()), self._vocab))


def quantize(
    source: Path,
    file: Path,
    kind: str,
    threads: int = 1,
    *,
    pure: bool = False,
    embedding: int = -1,
) -> Path:
    """Convert an F16 or F32 file with llama.cpp's own quantizer, and return the new file.

    kind       of `gguf.LlamaFileType`, such as "Q8_0" or "Q4_K_M"
    pure       use one type for all matrices instead of the mixture that `kind` stands for
    embedding  the embedding's type, if it is not to be the usual one; of `gguf.GGMLQuantizationType`
    """
    params = library().llama_model_quantize_default_params()
    params.ftype = int(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    params.nthread, params.pure = threads, pure
    if embedding >= 0:
        params.token_embedding_type = embedding
    status = library().llama_model_quantize(
        str(source).encode(), str(file).encode(), ctypes.byref(params)
    )
    assert status == 0, f"llama.cpp does not quantize {source} to {kind}"
    return file
