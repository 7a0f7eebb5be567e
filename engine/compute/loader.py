"""From a model's name to something that runs: a TorchRunner and its tokenizer."""

from pathlib import Path

import torch

from engine.compute.model.config import LlamaConfig, ModelConfig, read_config
from engine.compute.model.decoder import Decoder
from engine.compute.model.gpt2 import GPT2
from engine.compute.threads import set_threads
from engine.compute.torch_runner import TorchRunner
from engine.compute.weights.checkpoint import Checkpoint, CheckpointError
from engine.compute.weights.gguf_checkpoint import GGUFCheckpoint
from engine.compute.weights.hub import fetch, is_hub_name
from engine.text.gguf_tokenizer import GGUFTokenizer
from engine.text.tokenizer import HFTokenizer

BUNDLED = Path(__file__).parent.parent / "bundled"


def load(
    model: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    threads: int | None = None,
) -> tuple[TorchRunner, HFTokenizer]:
    """The model in a Hugging Face directory, on its hub or in a GGUF file; "bundled" is our own.

    model    a directory or file; where there is none of that name, `owner/name` on the hub
    dtype    what it computes in; on a CPU float32 is the fastest as well as the most exact
    threads  see `set_threads`

    KV memory is not reserved here: each engine reserves its own. Raises CheckpointError or
    TokenizerError, naming the file and what to do, for a directory that is not a supported model.
    """
    set_threads(threads)
    path, name = _find(model)
    weights: Checkpoint
    tokenizer: HFTokenizer
    if path.is_file():
        weights = GGUFCheckpoint(path, dtype)
        model_config, tokenizer = weights.config, GGUFTokenizer(path)
    else:
        model_config, tokenizer = read_config(path), HFTokenizer(path, name)
        weights = Checkpoint(path, dtype)
    if tokenizer.vocab_size > model_config.vocab_size:
        raise CheckpointError(
            f"{path}: tokenizer.json has {tokenizer.vocab_size} tokens, config.json only "
            f"{model_config.vocab_size}: they do not belong together"
        )
    return TorchRunner(build(model_config, weights), name=name), tokenizer


def _find(model: str | Path) -> tuple[Path, str]:
    """The model's directory or GGUF file, and what to call it."""
    directory = BUNDLED if model == "bundled" else Path(model)
    if directory.is_file():
        return directory, directory.stem
    if directory.is_dir():
        return directory, directory.resolve().name
    if not is_hub_name(str(model)):
        raise CheckpointError(
            f"there is no model directory {directory}: give the directory of a Hugging Face model, "
            'owner/name of one on its hub, or "bundled"'
        )
    return fetch(str(model)), str(model)


def build(config: ModelConfig, weights: Checkpoint) -> Decoder | GPT2:
    """The model of this configuration. Raises CheckpointError if the weights are not for it."""
    return Decoder(config, weights) if isinstance(config, LlamaConfig) else GPT2(config, weights)
