"""Restore the requests that were running in the middle of a run, with the tokens they had computed.

A part of a log begins with requests that are running. In its replay they arrive like others, with the
output that they had; then one step, which takes no time, admits all of them and computes as much as was
computed. The budget does not limit this step, so the next one decides as the recorded one did. With
fewer seats or less memory than recorded, the last of them stay in the queue.
"""

from collections.abc import Mapping

from engine.core.engine import Engine
from engine.core.log import vocabulary as v
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.extensions.grouped_cache import GroupedScheduler
from engine.extensions.sglang_scheduler import SGLangScheduler
from engine.simulation.cost_runner import CostRunner
from engine.simulation.vllm_drafts import note_decoding


def restore(engine: Engine, runner: CostRunner, computed: Mapping[int, int]) -> None:
    """Admit requests that have just arrived.

    computed  how many of a request's tokens were computed, in the order in which they were admitted

    With static batches, SGLang's scheduler and several KV cache groups nothing is done: the first steps
    admit the requests again.
    """
    scheduler, cache, size = engine.scheduler, engine.cache, engine.config.block_size
    is_other = isinstance(scheduler, SGLangScheduler | GroupedScheduler)
    if is_other or engine.config.batching == "static":
        return

    def admit(plan: Plan, **_: bool) -> v.Blocked | None:
        for number, tokens in computed.items():
            if (request := engine.requests.get(number)) is None:
                continue
            match = cache.match_prefix(request)
            count = tokens - len(match.blocks) * size
            need = engine.config.blocks_for(tokens) - len(match.blocks)
            if scheduler._free_seats() < request.num_seqs:
                break
            if need > cache.num_available_blocks_beside(match):
                break
            scheduler._admit(request, match)
            if count > 0 and (copies := cache.allocate_slots(request, count)) is not None:
                Scheduler._add_row(scheduler, plan, request, count, copies)
            if tokens == len(request.tokens) - 1:
                note_decoding(scheduler, request)
        return None

    parts = {"_schedule_running": lambda _plan: False, "_admit_waiting": admit}
    cpu_us, runner.clock.cpu_us = runner.clock.cpu_us, 0
    vars(scheduler).update(parts)
    vars(runner)["step_ms"] = lambda _rows, **_: 0.0
    try:
        engine.step()
    finally:
        for name in parts:
            del vars(scheduler)[name]
        del vars(runner)["step_ms"]
        runner.clock.cpu_us = cpu_us
