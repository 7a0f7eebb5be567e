"""Load a model by its name: a TorchRunner and its tokenizer."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.compute.device import Device, Precision, resolve_device, resolve_dtype
from engine.core.compute.model import ModelConfig
from engine.core.compute.torch_runner import TorchRunner
from engine.core.config import EngineConfig
from engine.core.tokenizer import TokenizerError
from engine.models.config import LlamaConfig
from engine.models.config_file import read_config
from engine.models.config_gemma4 import Gemma4Config
from engine.models.decoder import Decoder
from engine.models.gemma4 import Gemma4
from engine.models.gpt2 import GPT2
from engine.models.kernels import noted
from engine.models.lora import ModelAdapters
from engine.models.memory import MemoryPlan, plan_memory
from engine.models.mla import LatentDecoder, MLAConfig
from engine.models.text.gguf_tokenizer import GGUFTokenizer
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.models.threads import set_threads
from engine.models.weights.checkpoint import Checkpoint, CheckpointError
from engine.models.weights.gguf_checkpoint import GGUFCheckpoint
from engine.models.weights.hub import download, is_hub_name

BUNDLED = Path(__file__).parent.parent / "bundled"


# Models that need less are loaded without a message.
_WORTH_STATING = 200 * 10**6


class DraftModelError(CheckpointError):
    """A draft model cannot be used for its target."""


def load(
    model: str | Path,
    *,
    engine: EngineConfig | None = None,
    dtype: Precision | str = "auto",
    device: Device | str = "cpu",
    threads: int | None = None,
    draft_model: str | Path | None = None,
    draft_length: int = 4,
) -> tuple[TorchRunner, HFTokenizer]:
    """Load a model from a Hugging Face directory, the hub or a GGUF file; "bundled" is our own.

    model    a directory or file; if neither exists, `owner/name` on the hub
    engine   the engine's settings, to check before loading that its KV memory fits, too
    dtype    type of weights, KV and computation; see `precision.py`. "auto" is float32 for the bundled
             model, or the outputs in the lessons would depend on the machine
    device   where the model is and computes; see `device.py`
    threads  see `set_threads`
    draft_model, draft_length
             a draft model that is loaded afterwards (`load_draft_model`): its memory is checked, too

    Each engine reserves its own KV memory later. Raises CheckpointError or TokenizerError, which
    name the file and the fix, if the directory is not a supported model, and ConfigError for a
    precision or a device that does not exist, or if there is not enough memory.
    """
    set_threads(threads)
    found = open_model(model, dtype, device)
    plan = _plan(found, engine, _open_draft(draft_model, dtype, device), draft_length)
    plan.check()
    if plan.needed > _WORTH_STATING:
        print(plan, file=sys.stderr, flush=True)
    tokenizer = found.tokenizer()
    from tqdm import tqdm

    with tqdm(
        total=plan.weights, desc=f"Loading {found.name}", unit="B", unit_scale=True, leave=False,
        disable=None, delay=1,  # shown only on a terminal, and only after a second
    ) as bar:  # fmt: skip
        found.weights.on_loaded = bar.update
        loaded = build(found.config, found.weights)
        runner = TorchRunner(loaded, name=found.name)
        runner.adapters = ModelAdapters(loaded)
        return runner, tokenizer


def plan(
    model: str | Path,
    engine: EngineConfig,
    *,
    dtype: Precision | str = "auto",
    device: Device | str = "cpu",
    draft_model: str | Path | None = None,
    draft_length: int = 4,
) -> MemoryPlan:
    """Return the memory that `load` and an engine would need, without loading the model.

    Raises CheckpointError and ConfigError like `load`, but not for a model that does not fit.
    """
    found = open_model(model, dtype, device)
    return _plan(found, engine, _open_draft(draft_model, dtype, device), draft_length)


@dataclass(frozen=True, slots=True)
class Found:
    """A model whose files are open, and of which only the headers have been read."""

    path: Path
    name: str
    config: ModelConfig
    weights: Checkpoint

    def tokenizer(self) -> HFTokenizer:
        """Load the tokenizer. Raises CheckpointError if it is not this model's."""
        tokenizer = (
            GGUFTokenizer(self.path, self.weights.file.fields)
            if isinstance(self.weights, GGUFCheckpoint)
            else HFTokenizer(self.path, self.name)
        )
        if tokenizer.vocab_size > self.config.vocab_size:
            raise CheckpointError(
                f"{self.path}: the tokenizer has {tokenizer.vocab_size} tokens, but the model's "
                f"vocab_size is {self.config.vocab_size}: use the tokenizer of this model"
            )
        return tokenizer


def open_model(model: str | Path, dtype: Precision | str, device: Device | str) -> Found:
    """Find a model and read its headers."""
    place = resolve_device(device)
    if model == "bundled" and dtype == "auto":
        dtype = "float32"
    path, name = _find(model)
    weights: Checkpoint
    if path.is_file():
        weights = gguf = GGUFCheckpoint(path)
        config = gguf.config
    else:
        config, weights = read_config(path), Checkpoint(path)
    if isinstance(config, LlamaConfig):
        weights.ignore_others(
            config.family.text_prefix, config.unread
        )  # their memory is not needed
    weights.dtype, weights.device = resolve_dtype(dtype, weights.stored_dtype(), place), place
    return Found(path, name, config, weights)


def _plan(
    found: Found, engine: EngineConfig | None, draft: Found | None, length: int
) -> MemoryPlan:
    """Return the plan for a model and, if there is one, its draft model with `length` drafts."""
    beside: MemoryPlan | None = None
    if draft is not None:
        beside = plan_memory(draft.name, draft.weights, draft.config, engine, draft_length=length)
    return plan_memory(found.name, found.weights, found.config, engine, draft=beside)


def _open_draft(
    model: str | Path | None, dtype: Precision | str, device: Device | str
) -> Found | None:
    try:
        return None if model is None else open_model(model, dtype, device)
    except CheckpointError as error:
        raise DraftModelError(str(error)) from error


def load_draft_model(
    model: str | Path, target: TorchRunner, tokenizer: HFTokenizer, **options: Any
) -> TorchRunner:
    """Load a draft model for a target, whose tokenizer it must share. `options` are those of `load`.

    Raises DraftModelError if it cannot be loaded or if the vocabularies differ.
    """
    try:
        runner, own = load(model, **options)
    except (CheckpointError, TokenizerError) as error:
        raise DraftModelError(str(error)) from error
    names = f"the draft model {own.name} must have the vocabulary of {tokenizer.name}"
    for size, wanted in (
        (own.vocab_size, tokenizer.vocab_size),
        (runner.vocab_size, target.vocab_size),
    ):
        if size != wanted:
            raise DraftModelError(f"{names}: {size} tokens instead of {wanted}; use another one")
    for token in range(own.vocab_size):
        text, expected = own.token_bytes(token), tokenizer.token_bytes(token)
        if text != expected:
            raise DraftModelError(
                f"{names}: token {token} is {text!r} instead of {expected!r}; use another one"
            )
    return runner


def _find(model: str | Path) -> tuple[Path, str]:
    """Return the model's directory or GGUF file, and its name."""
    directory = BUNDLED if model == "bundled" else Path(model)
    if directory.is_file():
        return directory, directory.stem
    if directory.is_dir():
        return directory, directory.resolve().name
    if not is_hub_name(str(model)):
        raise CheckpointError(
            f"there is no model directory {directory}: give the directory of a Hugging Face model, a "
            'GGUF file, owner/name or owner/name:Q4_K_M of one on the hub, or "bundled"'
        )
    return download(str(model)), str(model)


def build(config: ModelConfig, weights: Checkpoint) -> Decoder | GPT2:
    """Build the model that `config` describes. Raises CheckpointError if the weights do not match."""
    with noted() as kernels:
        if isinstance(config, Gemma4Config):
            model: Decoder | GPT2 = Gemma4(config, weights)
        elif isinstance(config, MLAConfig):
            model = LatentDecoder(config, weights)
        elif isinstance(config, LlamaConfig):
            model = Decoder(config, weights)
        else:
            model = GPT2(config, weights)
    model.kernels = kernels
    weights.release_all()  # of matrices that were packed, nothing else needs the file's pages
    return model
