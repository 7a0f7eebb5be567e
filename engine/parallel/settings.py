"""How a model is divided among devices, each of which is a process on this machine.

    tensor     each matrix is cut: attention by heads, feed-forward networks by their inner size, the
               vocabulary by tokens. All devices compute each token, and add their partial results
               twice per layer
    pipeline   the layers are cut into stages. Each device computes all of its layers for a part of
               the batch and sends the activations on
    expert     the experts of a mixture stay whole and are divided among the `tensor` devices, instead
               of cutting each expert

The names are those of vLLM: `--tensor-parallel-size`, `--pipeline-parallel-size` and
`--enable-expert-parallel`. There, too, experts take the place of tensor parallelism in the mixture
alone, over the same group of devices, and without data parallelism each device computes its own
experts for all tokens and an all-reduce adds the results (`FusedMoEParallelConfig` in
`vllm/model_executor/layers/fused_moe/config.py`). `all_to_all` sends tokens to their experts instead;
see `experts.py`.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.config import ConfigError
from engine.core.extras import needs_extra
from engine.parallel.forks import prepare

if TYPE_CHECKING:
    from engine.models.text.hf_tokenizer import HFTokenizer
    from engine.parallel.runner import ParallelRunner


# (name, rows, columns, unit, part, parts) -> the rows and the columns that this part keeps
Cut = Callable[[str, int, int, int, int, int], tuple[range, range]]


@dataclass(frozen=True, slots=True)
class Parallel:
    """See above. It takes the place of the module `engine.models.loader`.

    microbatches  into how many parts a step's rows are divided so that stages overlap
    all_to_all    whether a token is sent to the devices that have its experts
    timeout_s     how long a device may be silent before its step fails
    cut           a rule of your own for the weights of attention and feed-forward networks, in place of
                  `shards.py`; see `weights_to_cut` there

    Raises ConfigError for a size below 1.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: bool = False
    all_to_all: bool = False
    microbatches: int = 2
    timeout_s: float = 60.0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "microbatches"):
            if (size := getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be at least 1, got {size!r}")
        if self.expert and self.tensor == 1:
            raise ConfigError("expert divides experts among the tensor devices: set tensor, too")
        if self.all_to_all and not self.expert:
            raise ConfigError(
                "all_to_all sends tokens to experts on other devices: set expert, too"
            )

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.tensor * self.pipeline

    def load(self, model: str | Path, **options: Any) -> "tuple[ParallelRunner, HFTokenizer]":
        """Start the devices and load a model's parts; see `engine.models.loader.load`.

        Raises its errors, ConfigError for a model that cannot be divided like this, and DeviceError.
        """
        if sys.platform == "emscripten":
            raise ConfigError(
                "parallel needs a process per device, and a page in a browser has none: run this in "
                "a notebook of your own"
            )
        prepare()
        with needs_extra("Engine.load"):
            runner = importlib.import_module("engine.parallel.runner")
        loaded: tuple[ParallelRunner, HFTokenizer] = runner.load(self, model, **options)
        return loaded

    def load_draft_model(self, *arguments: Any, **options: Any) -> Any:
        """Load a draft model, which runs whole in the engine's own process."""
        loader = importlib.import_module("engine.models.loader")
        return loader.load_draft_model(*arguments, **options)
