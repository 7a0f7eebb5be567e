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
from engine.extensions.sglang_scheduler import SGLangScheduler
from engine.simulation.cost_runner import CostRunner
from engine.simulation.restored_groups import RestoredGroups
from engine.simulation.vllm_drafts import note_decoding
from engine.simulation.workload import Restore


def restore(engine: Engine, runner: CostRunner, given: Restore) -> None:
    """Admit requests that have just arrived.

    With static batches and SGLang's scheduler nothing is done: the first steps admit them again.
    """
    scheduler, cache = engine.scheduler, engine.cache
    if isinstance(scheduler, SGLangScheduler) or engine.config.batching == "static":
        return
    groups = None
    if given.memory is not None:
        requests = [one for one in given.computed if one in engine.requests]
        groups = RestoredGroups(engine, given.memory, requests[: engine.config.max_batch_size])

    def admit(plan: Plan, **_: bool) -> v.Blocked | None:
        for number, tokens in given.computed.items():
            if (request := engine.requests.get(number)) is None:
                continue
            if groups is None:
                match: PrefixMatch = cache.match_prefix(request)
                need = engine.config.blocks_for(tokens) - len(match.blocks)
                if need > cache.num_available_blocks_beside(match):
                    break
                taken = sum(one.num_seqs for one in scheduler.running)
                if taken + request.num_seqs > engine.config.max_batch_size:
                    break
            elif number in groups.kept:
                match = groups.match(number)
            else:
                break
            scheduler._admit(request, match)
            if groups is not None:
                groups.give_rest(request)
                begin = given.starts.get(number, request.num_computed_tokens)
                request.num_computed_tokens = begin
            count = tokens - request.num_computed_tokens
            copies = [] if groups or count <= 0 else cache.allocate_slots(request, count)
            if count > 0 and copies is not None:
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
