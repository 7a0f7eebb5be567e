"""Measure how much recording slows down a whole vLLM. Needs vLLM.

    PYTHONPATH=recorders/vllm:notebooks:. VLLM_PYTHON -m benchmarks.recording

One engine decodes, with the recorder off and on in alternating rounds. A model's own time on a CPU
differs by more from round to round than the recorder takes, so each pass of the model is held for as
long as a GPU of constant speed would take (`benchmarks/steady_machine.py`); both rounds of a pair hold
the same times. All of the recorder's time is then added to the step, as on a GPU without asynchronous
scheduling. Prints the mean of a pair's difference with its standard error, in % of the step.

With `--page`, the recorder feeds a live page instead of a file: `UNDERGLASS_COMMAND` names the command.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from underglass_vllm import Recorder, RecordingScheduler
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler

from benchmarks.advice import ENVIRONMENT, MODEL
from benchmarks.steady_machine import MACHINES, SteadyMachine

PROMPT, BATCHES = 64, (1, 32, 128)
FIRST_PORT, PAGE_STARTS = 20_000, 4.0  # seconds
WAKES_LATE = 0.0002  # seconds before the end of a pass, from which the clock is watched


class HeldScheduler(RecordingScheduler):
    """A scheduler whose passes last as long as on `machine`. It records while it has a recorder."""

    machine: SteadyMachine

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Scheduler.__init__(self, *args, **kwargs)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule a step, and look up when its pass ends."""
        output = super().schedule(*args, **kwargs)
        rows = [
            (count, self.requests[one].num_computed_tokens)
            for one, count in output.num_scheduled_tokens.items()
        ]
        lasts = self.machine.step_ms(rows) / 1000 if rows else 0.0
        self._until = time.monotonic() + lasts
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the end of the pass, and process its output."""
        while (left := self._until - time.monotonic()) > 0:
            time.sleep(max(0.0, left - WAKES_LATE))
        return super().update_from_output(*args, **kwargs)


def engine_in(folder: Path) -> LLMEngine:
    """Return vLLM with a tiny model, whose passes fit into those of the machine."""
    config = Path(__file__).parents[1] / "engine" / "bundled" / "config.json"
    tiny = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
    entries = json.loads(config.read_text()) | MODEL | tiny | {"num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(entries))
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=str(folder),
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,
            max_model_len=1024,
            block_size=32,
            max_num_batched_tokens=4096,
            max_num_seqs=max(BATCHES),
            num_gpu_blocks_override=4000,
            scheduler_cls=HeldScheduler,
            async_scheduling=False,
        )
    )


class Rounds:
    """Rounds in which a batch of requests decodes."""

    def __init__(self, folder: Path, gpu: str, tokens: int, *, has_page: bool) -> None:
        self._folder, self._gpu, self._tokens, self._has_page = folder, gpu, tokens, has_page
        self._engine = engine_in(folder)
        self._scheduler: Any = self._engine.engine_core.engine_core.scheduler
        self._requests = 0

    def step_ms(self, batch: int, *, is_recorded: bool) -> float:
        """Return how long a step of a round takes."""
        self._scheduler.machine = SteadyMachine(self._gpu, 1)
        stop = self._record() if is_recorded else None
        ends = SamplingParams(
            max_tokens=self._tokens, ignore_eos=True, temperature=0.0, detokenize=False
        )
        for number in range(batch):
            self._requests += 1
            prompt = {"prompt_token_ids": [3 + (7 * number + at) % 400 for at in range(PROMPT)]}
            self._engine.add_request(str(self._requests), prompt, ends)
        self._engine.step()
        begin, steps = time.monotonic(), 0
        while self._engine.has_unfinished_requests():
            self._engine.step()
            steps += 1
        took = time.monotonic() - begin
        if stop is not None:
            stop()
        self._scheduler.reset_prefix_cache()
        return 1000 * took / steps

    def _record(self) -> Callable[[], None]:
        """Begin to record. Return what ends it."""
        scheduler, manager = self._scheduler, self._scheduler.kv_cache_manager
        if self._has_page:  # each on a port of its own, because the last one may still be ending
            os.environ["UNDERGLASS_LIVE"] = str(FIRST_PORT + self._requests % 10_000)
        else:
            os.environ["UNDERGLASS_RECORD"] = f"{self._folder / str(self._requests)}.jsonl.gz"
        recorder = scheduler._recorder = Recorder(scheduler)
        recorder.watch()
        if self._has_page:
            time.sleep(PAGE_STARTS)

        def stop() -> None:
            assert scheduler._recorder is recorder, "the recorder has stopped"
            recorder.writer.close()
            scheduler._recorder = None
            del manager.allocate_slots, manager.block_pool.cache_full_blocks

        return stop


def main() -> None:
    """Measure each batch size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", choices=MACHINES, default="A10")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=120, help="of each request")
    parser.add_argument("--page", action="store_true", help="a live page instead of a file")
    options = parser.parse_args()
    os.environ |= ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    torch.set_num_threads(1)  # those of a tiny model only wait for each other
    with TemporaryDirectory() as folder:
        rounds = Rounds(Path(folder), options.gpu, options.tokens, has_page=options.page)
        for batch in BATCHES:
            rounds.step_ms(batch, is_recorded=False)  # warms up
            plain, slower = list[float](), list[float]()
            for number in range(options.pairs):
                order = (False, True) if number % 2 else (True, False)
                took = {one: rounds.step_ms(batch, is_recorded=one) for one in order}
                plain.append(took[False])
                slower.append(100 * (took[True] / took[False] - 1))
            error = statistics.stdev(slower) / options.pairs**0.5
            print(
                f"{batch:6} requests: a step of {statistics.mean(plain):.1f} ms, "
                f"recorded {statistics.mean(slower):+.2f} ± {error:.2f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
