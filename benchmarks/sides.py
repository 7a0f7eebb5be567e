"""Systems that decode the same prompts in turns: the engine, llama.cpp, transformers and others.

transformers' `generate` keeps control until it has all tokens, so it sets the pace: after each block of
its tokens, every other system decodes as many. A busy moment of the machine hits all of them.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import BaseStreamer

from benchmarks.harness import Ratio, timed
from engine import Engine, EngineConfig, SamplingParams
from engine.core.request import Request

Clock = Callable[[], float]


def clock_for(threads: int) -> Clock:
    """Return CPU time for one thread, which other load changes little, and wall time for more."""
    return time.process_time if threads == 1 else time.perf_counter


class Side(Protocol):
    """A system that takes part: prompts first, then one token per sequence and step."""

    def start(self, prompts: list[list[int]], /) -> None:
        """Compute the prompts and the first token of each."""
        ...

    def step(self) -> None:
        """Compute the next token of each sequence."""
        ...

    def close(self) -> None:
        """Free its memory."""
        ...


class EngineSide:
    """The engine with its event log, for texts of `length` tokens.

    make  returns an engine with this configuration
    """

    def __init__(self, make: Callable[[EngineConfig], Engine], batch: int, length: int) -> None:
        self._length = length
        self._engine = make(
            EngineConfig(
                token_budget=batch * length,
                max_batch_size=batch,
                max_kv_tokens=batch * (length + 16),
            )
        )
        self.requests: list[Request] = []

    def start(self, prompts: list[list[int]]) -> None:
        """See `Side`."""
        rest = self._length - len(prompts[0])
        params = SamplingParams(max_tokens=rest, temperature=0, ignore_eos=True)
        self.requests = [self._engine.submit(tokens, params) for tokens in prompts]
        self.step()
        assert all(len(request.output_ids) == 1 for request in self.requests)

    def step(self) -> None:
        """See `Side`."""
        self._engine.step()

    def close(self) -> None:
        """See `Side`: the model serves the next batch size, too."""


@dataclass
class Measured:
    """Seconds of each system's prefill, and of its steps in each block, of which the first warms."""

    batch: int
    prefill: dict[str, float]
    blocks: dict[str, list[float]]

    def over(self) -> dict[str, Ratio]:
        """Return the engine's speed over each other system's."""
        engine = self.blocks["engine"][1:]
        others = {name: times[1:] for name, times in self.blocks.items() if name != "engine"}
        return {name: Ratio.of(engine, times) for name, times in others.items()}

    def speed(self, name: str) -> float:
        """Return a system's tokens per second."""
        return self.batch / statistics.median(self.blocks[name][1:])

    def line(self) -> str:
        """Return speeds, and the engine's over each other system's."""
        cells = [f"engine {self.speed('engine'):7.1f} tok/s"]
        for name, ratio in self.over().items():
            cells.append(f"{name} {self.speed(name):7.1f}: {ratio.quartiles[1]:5.2f}x")
        return "; ".join(cells)

    def figures(self) -> dict[str, Any]:
        """Return the numbers for `save`."""
        return {
            "tokens_per_second": {name: self.speed(name) for name in self.blocks},
            "prefill_seconds": self.prefill,
            "engine_over": {name: ratio.figures() for name, ratio in self.over().items()},
        }


class Turns(BaseStreamer):
    """Times transformers, whose `generate` calls it with each step's tokens, and the other systems."""

    def __init__(self, sides: dict[str, Side], block: int, clock: Clock, bar: tqdm) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in ("transformers", *sides)}
        self._sides, self._block, self._clock, self._bar = sides, block, clock, bar
        self._left = 2  # before the first block come the prompts and the first token of each
        self._since = 0.0
        self.prefill = 0.0

    def put(self, value: torch.Tensor) -> None:
        """Called with the prompts, then with each step's tokens."""
        del value
        self._left -= 1
        if self._left == 0:
            passed = self._clock() - self._since
            if self.prefill:
                self.seconds["transformers"].append(passed / self._block)
                self.turn()
            self.prefill = self.prefill or passed
            self._left = self._block
            self._since = self._clock()
        elif not self.prefill:
            self._since = self._clock()

    def turn(self) -> None:
        """Let every side decode a block, each time in another order."""
        names = list(self._sides)
        first = len(self.seconds[names[0]]) % len(names)
        for name in names[first:] + names[:first]:
            seconds = timed(lambda: self._decode(self._sides[name]), self._clock)  # noqa: B023
            self.seconds[name].append(seconds / self._block)
        self._bar.update()

    def end(self) -> None:
        """Nothing to close."""

    def _decode(self, side: Side) -> None:
        for _ in range(self._block):
            side.step()


def measure(  # noqa: PLR0917
    name: str,
    sides: dict[str, Side],
    model: PreTrainedModel | None,
    prompts: Sequence[list[int]],
    blocks: tuple[int, int],
    clock: Clock,
) -> Measured:
    """Decode with all sides in turns, and with transformers if there is a model for it.

    prompts  of the same length
    blocks   how many are measured, and the steps in each; one more, the first, warms
    """
    count, size = blocks
    prefill = {
        side: timed(lambda: sides[side].start(list(prompts)), clock)  # noqa: B023
        for side in sides
    }
    with tqdm(total=count + 1, desc=name, leave=False, disable=None) as bar:
        turns = Turns(sides, size, clock, bar)
        if model is None:
            for _ in range(count + 1):
                turns.turn()
        else:
            greedy = GenerationConfig(
                max_new_tokens=1 + size * (count + 1),
                do_sample=False,
                pad_token_id=0,
                eos_token_id=-1,
            )
            tokens = torch.tensor(prompts)
            with torch.inference_mode():
                model.generate(
                    tokens,
                    attention_mask=torch.ones_like(tokens),
                    generation_config=greedy,
                    streamer=turns,
                )
            prefill["transformers"] = turns.prefill
    return Measured(
        len(prompts), prefill, {name: all_ for name, all_ in turns.seconds.items() if all_}
    )
