"""Load a model by its name: a TorchRunner and its tokenizer."""

from pathlib import Path

import torch

from engine.compute.model.config import LlamaConfig, ModelConfig, read_config
from engine.compute.model.decoder import Decoder
from engine.compute.model.gpt2 import GPT2
from engine.compute.threads import set_threads
from engine.compute.torch_runner import TorchRunner
from engine.compute.weights.checkpoint import Checkpoint, CheckpointError
from engine.compute.weights.gguf_checkpoint import GGUFCheckpoint
from engine.compute.weights.hub import download, is_hub_name
from engine.text.gguf_tokenizer import GGUFTokenizer
from engine.text.tokenizer import HFTokenizer

BUNDLED = Path(__file__).parent.parent / "bundled"


def load(
    model: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    threads: int | None = None,
) -> tuple[TorchRunner, HFTokenizer]:
    """Load a model from a Hugging Face directory, the hub or a GGUF file; "bundled" is our own.

    model    a directory or file; if neither exists, `owner/name` on the hub
    dtype    precision of weights and computation; on a CPU, float32 is the fastest and the most exact
    threads  see `set_threads`

    Each engine reserves its own KV memory later. Raises CheckpointError or TokenizerError, which
    name the file and the fix, if the directory is not a supported model.
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
            f"{path}: tokenizer.json has {tokenizer.vocab_size} tokens, but config.json only "
            f"{model_config.vocab_size}: use the tokenizer of this model"
        )
    return TorchRunner(build(model_config, weights), name=name), tokenizer


def _find(model: str | Path) -> tuple[Path, str]:
    """Return the model's directory or GGUF file, and its name."""
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
    return download(str(model)), str(model)


def build(config: ModelConfig, weights: Checkpoint) -> Decoder | GPT2:
    """Build the model that `config` describes. Raises CheckpointError if the weights do not match."""
    return Decoder(config, weights) if isinstance(config, LlamaConfig) else GPT2(config, weights)
