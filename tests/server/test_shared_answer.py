"""Pages that ask at once, and soon again, share one answer."""

import asyncio

import pytest

from server.api import shared_answer
from server.api.shared_answer import KEPT, SharedAnswer


async def test_an_answer_is_computed_once_for_all_until_it_has_cost_little(monkeypatch):
    now, answers = [0.0], iter("ab")
    monkeypatch.setattr(shared_answer.time, "monotonic", lambda: now[0])

    async def compute() -> str:
        now[0] += 2
        return next(answers)

    shared = SharedAnswer[str]()
    assert await asyncio.gather(*(shared.get(compute) for _ in range(30))) == ["a"] * 30
    now[0] += 2 * KEPT - 1
    assert await shared.get(compute) == "a"
    now[0] += 1
    assert await shared.get(compute) == "b"
    now[0] += 2 * KEPT
    with pytest.raises(RuntimeError):  # of the exhausted iterator
        await shared.get(compute)
