"""Restore the requests that were running in the middle of a run, with the tokens they had computed.

A part of a log begins with requests that are running. In its replay they arrive like others, with the
output that they had; then one step, which takes no time, admits all of them and computes as much as was
computed. The budget does not limit this step, so the next one decides as the recorded one did. With
fewer seats or less memory than recorded, the last of them stay in the queue.
"""

from engine.core.cache.prefix_cache import PrefixMatch
from engine.core.engine import Engine
from engine.core.log import vocabulary as v
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.extensions.grouped_cache import GroupedCache
from engine.extensions.sglang_scheduler import SGLangScheduler
from engine.simulation.cost_runner import CostRunner
from engine.simulation.vllm_drafts import note_decoding
from engine.simulation.workload import Restore


def restore(engine: Engine, runner: CostRunner, given: Restore) -> None:
    """Admit requests that have just arrived.

    With static batches and SGLang's scheduler nothing is done: the first steps admit them again.
    """
    scheduler, cache, size = engine.scheduler, engine.cache, engine.config.block_size
    if isinstance(scheduler, SGLangScheduler) or engine.config.batching == "static":
        return

    def admit(plan: Plan, **_: bool) -> v.Blocked | None:
        for number, tokens in given.computed.items():
            if (request := engine.requests.get(number)) is None:
                continue
            match: PrefixMatch = cache.match_prefix(request)
            if isinstance(cache, GroupedCache):
                match = cache.match_in_run(request, given.shared.get(number, 0), tokens)
            count = tokens - len(match.blocks) * size
            need = engine.config.blocks_for(tokens) - len(match.blocks)
            if isinstance(cache, GroupedCache):
                need += cache.blocks_of_others(tokens)
            if scheduler._free_seats() < request.num_seqs:
                break
            if need > cache.num_available_blocks_beside(match):
                break
            scheduler._admit(request, match)
            if isinstance(cache, GroupedCache):
                cache.junctions[number] = given.junctions.get(number, 0)
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
