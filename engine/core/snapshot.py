"""The engine's state, read from the live objects.

It shares no code with the fold of the log (`engine/core/log/fold.py`), and tests compare the two after
every event.
"""

from typing import TYPE_CHECKING, Any

from engine.core.scheduling.scheduler import Plan

if TYPE_CHECKING:
    from engine.core.engine import Engine


def snapshot(engine: "Engine") -> dict[str, Any]:
    """Return the engine's state as plain values, in the names and order of `State.core()`."""
    pages, holds = engine.cache.pages, {} if engine.loop.holds is None else engine.loop.holds.live
    windows = {} if pages is None else {"window_pages": pages.blocks}
    return windows | {
        "seq": engine.log.next_seq - 1,
        "step": engine.step_count,
        "tick": engine.cache.tick,
        "paused": engine.paused,
        "waiting": [request.id for request in engine.scheduler.waiting],
        "running": [request.id for request in engine.scheduler.running],
        "plan": _rows(engine.scheduler.plan),
        "in_flight": [
            [plan.step, _rows(plan)]
            for plan in engine.scheduler.plans
            if plan.rows and plan.step != engine.step_count
        ],
        "free": list(engine.pool.free),
        "queue": list(engine.cache.eviction_queue),
        "refs": list(engine.pool.refs),
        "requests": [
            {
                "id": request.id,
                "root": request.root,
                "sample": request.sample,
                "prompt_length": request.prompt_length,
                "tokens": list(request.tokens),
                "computed": request.num_computed_tokens,
                "table": list(request.block_table),
                "lock": request.last_node,
                "slots": request.num_seqs,
                "preemptions": request.preemptions,
            }
            for _, request in sorted(engine.requests.items())
        ],
        "nodes": [
            {
                "id": node.id,
                "parent": -1 if node.parent is None else node.parent.id,
                "tokens": list(node.tokens),
                "blocks": list(node.blocks),
                "copies": list(node.copies),
                "last": node.last,
                "lock": node.lock_ref,
            }
            for _, node in sorted(engine.cache.nodes.items())
        ],
        "holds": [
            {"id": hold.id, "table": list(hold.block_table), "lock": hold.last_node}
            for _, hold in sorted(holds.items())
        ],
    }


def _rows(plan: Plan) -> list[list[Any]]:
    return [[row.request.id, row.start, row.count, list(row.drafts)] for row in plan.rows]
