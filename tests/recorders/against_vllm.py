"""Compare what a recording says with what vLLM's own objects held, after every step.

    PYTHONPATH=recorders/vllm:notebooks VLLM_PYTHON -m tests.recorders.against_vllm --seeds 20

vLLM's scheduler plays the workloads of `tests/parity` while it is recorded, without a model. After
each call its queue, its requests and its blocks are copied. The recording is then read, and folded.
With `--rotate` a recording is in many files, and each is read alone. Prints a JSON
object of counts; ends with an error at the first difference.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine.core.log.fold import State
from engine.core.log.vocabulary import EventsMissing
from parity.records import Workload
from tests.parity.record_vllm import FILLER, QUIET, SchedulerFactory, run
from tests.parity.recorded_steps import recording_to
from tests.parity.workloads import COUNTS, workloads
from visualizer.sources.vllm_recorder import VllmTranslator


def truth(scheduler: Any) -> dict[str, Any]:
    pool = scheduler.kv_cache_manager.block_pool
    queue = pool.free_block_queue.get_all_free_blocks()
    return {
        "free": [one.block_id - 1 for one in queue if one.block_hash is None],
        "cached": [one.block_id - 1 for one in queue if one.block_hash is not None],
        "hashed": sorted(one.block_id - 1 for one in pool.blocks if one.block_hash is not None),
        "running": [one.request_id for one in scheduler.running],
        "waiting": [one.request_id for one in scheduler.waiting],
        "tables": {
            key: [block - 1 for block in scheduler.kv_cache_manager.get_block_ids(key)[0]]
            for key in scheduler.requests
        },
        "tokens": {key: list(one.all_token_ids) for key, one in scheduler.requests.items()},
        "computed": {
            key: one.num_computed_tokens - one.num_in_flight_tokens
            for key, one in scheduler.requests.items()
            if not one.num_stale_output_tokens
        },
    }


def folded(state: State) -> dict[str, Any]:
    label = {id_: one.label for id_, one in state.requests.items()}
    return {
        "free": state.free[::-1],
        "cached": list(state.queue),
        "hashed": sorted(state.node_of),
        "running": [label[id_] for id_ in state.running],
        "waiting": [label[id_] for id_ in state.waiting],
        "tables": {one.label: list(one.block_table) for one in state.requests.values()},
        "tokens": {one.label: list(one.tokens) for one in state.requests.values()},
        "computed": {one.label: one.num_computed_tokens for one in state.requests.values()},
    }


def states(folder: Path) -> Iterator[State]:
    """Yield the state after each line of the recorder, over all files. Each file is read alone."""
    for file in sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name)):
        translator, state = VllmTranslator(), State()
        for line in file.read_bytes().splitlines():
            for event in translator.feed(line):
                if isinstance(event, EventsMissing):
                    raise AssertionError(event.message)
                state.apply(event)
            if not line.startswith(b'{"type":"pieces"'):  # the writer adds those
                yield state


def run_with_drafts(
    factory: SchedulerFactory, workload: Workload, scheduler: Any, look: Callable[[], None]
) -> None:
    """Play one workload with two drafts per row, of which the model accepts none, one or both."""
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

    for number, ask in enumerate(workload.requests, start=1):
        scheduler.add_request(factory.request(workload, number, ask))
    scheduler.num_spec_tokens, step = 2, 0
    while scheduler.requests:
        output, step = scheduler.schedule(), step + 1
        look()
        said: dict[str, list[int]] = {}
        for key in output.num_scheduled_tokens:
            request, drafts = (
                scheduler.requests[key],
                output.scheduled_spec_decode_tokens.get(key, []),
            )
            accepted = step % (len(drafts) + 1)
            reached = request.num_computed_tokens == request.num_tokens + len(drafts)
            said[key] = [FILLER] * (accepted + 1) if reached else []
        index = {key: number for number, key in enumerate(said)}
        result = ModelRunnerOutput(list(said), index, sampled_token_ids=list(said.values()))
        scheduler.update_from_output(output, result)
        look()
        ready = [key for key, tokens in said.items() if tokens and key in scheduler.requests]
        scheduler.update_draft_token_ids(DraftTokenIds(ready, [[FILLER] * 2 for _ in ready]))


def rotating(recorder: Any, lines_per_file: int) -> Callable[[], int]:
    """Let the recorder begin another file after so many lines; 0: never. Return their counter."""
    put, lines = recorder.writer.put, 1  # the header has been written

    def counting(line: dict[str, Any]) -> None:
        nonlocal lines
        put(line)
        lines += 1
        if lines_per_file and lines % lines_per_file == 0:
            recorder.writer.full_part = recorder._header["part"]

    recorder.writer.put = counting
    return lambda: lines


def check(
    factory: SchedulerFactory, workload: Workload, folder: Path, *, rotate: int, drafts: bool
) -> int:
    """Play, record and compare one workload. Return the number of compared moments.

    After each `rotate` lines another file begins; 0: never.
    """
    with recording_to(folder / "run.jsonl"):
        scheduler = factory.scheduler(workload)
    recorder, truths = scheduler._recorder, dict[int, Any]()  # by number of lines
    lines = rotating(recorder, rotate)
    playing = run_with_drafts if drafts else run
    playing(factory, workload, scheduler, lambda: truths.update({lines(): truth(scheduler)}))
    scheduler.shutdown()
    assert scheduler._recorder is recorder, "it has stopped"
    compared = len(truths)
    for number, state in enumerate(states(folder), start=1):
        if number in truths:
            compare(workload, folded(state), truths.pop(number), f"{workload.name}, line {number}")
    assert not truths, f"{workload.name}: the recording has fewer lines than were written"
    return compared


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5, help="workloads per stratum")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rotate", type=int, default=0, help="lines per file; 0: one file")
    parser.add_argument("--drafts", action="store_true", help="with drafts; not asynchronous")
    options = parser.parse_args()
    os.environ |= QUIET
    factory, counts = SchedulerFactory(), Counter[str]()
    drawn = workloads(dict.fromkeys(COUNTS, options.seeds), first_seed=options.first_seed)
    for workload in drawn:
        if options.drafts and workload.async_scheduling:
            continue
        with TemporaryDirectory() as folder:
            counts["moments"] += check(
                factory, workload, Path(folder), rotate=options.rotate, drafts=options.drafts
            )
            counts["files"] += len(list(Path(folder).iterdir()))
        counts["workloads"] += 1
    print(json.dumps(counts))


def compare(workload: Workload, ours: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    """Raise AssertionError for the first difference."""
    for name, value in theirs.items():
        mine = ours[name]
        if name == "computed":
            mine = {key: mine[key] for key in value}
        if name == "waiting" and workload.policy == "priority":
            mine, value = sorted(mine), sorted(value)
        assert mine == value, f"{where}: {name} is {mine}, in vLLM {value}"


if __name__ == "__main__":
    main()
