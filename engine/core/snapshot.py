"""The engine's state, read from the live objects.

It shares no code with the fold of the log (`engine/core/log/fold.py`), and tests compare the two after
every event.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from engine.core.log.vocabulary import HoldCore, NodeCore, RequestCore, ScheduledRow, StateCore
from engine.core.request import Request
from engine.core.scheduling.scheduler import Plan

if TYPE_CHECKING:
    from engine.core.engine import Engine


def snapshot(engine: "Engine") -> dict[str, Any]:
    """Return the engine's state as plain values: `StateCore`."""
    pages, holds = engine.cache.pages, {} if engine.loop.holds is None else engine.loop.holds.live
    state = StateCore(
        seq=engine.log.next_seq - 1,
        step=engine.step_count,
        tick=engine.cache.tick,
        paused=engine.paused,
        waiting=[request.id for request in engine.scheduler.waiting],
        running=[request.id for request in engine.scheduler.running],
        plan=_rows(engine.scheduler.plan),
        in_flight=[
            (plan.step, _rows(plan))
            for plan in engine.scheduler.plans
            if plan.rows and plan.step != engine.step_count
        ],
        free=engine.pool.free,
        queue=engine.cache.eviction_queue,
        refs=engine.pool.refs,
        requests=[_request(request) for _, request in sorted(engine.requests.items())],
        nodes=[_node(node) for _, node in sorted(engine.cache.nodes.items())],
        holds=[
            HoldCore(hold.id, hold.block_table, hold.last_node) for _, hold in sorted(holds.items())
        ],
        window_pages=None if pages is None else pages.blocks,
    )
    plain: dict[str, Any] = msgspec.to_builtins(state)  # it shares no list with the live objects
    return plain


def _request(request: Request) -> RequestCore:
    return RequestCore(*(getattr(request, field) for field in RequestCore.__struct_fields__))


def _node(node: Any) -> NodeCore:
    return NodeCore(
        id=node.id,
        parent=-1 if node.parent is None else node.parent.id,
        tokens=list(node.tokens),
        blocks=node.blocks,
        copies=list(node.copies),
        last=node.last,
        lock_ref=node.lock_ref,
    )


def _rows(plan: Plan) -> list[ScheduledRow]:
    return [ScheduledRow(row.request.id, row.start, row.count, row.drafts) for row in plan.rows]
