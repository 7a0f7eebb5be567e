"""A signal reaches the event loop, also where the loop itself cannot wait for one."""

import asyncio
import signal

import pytest

from server.core.signals import on_signal


@pytest.mark.parametrize("loop_has_handlers", [True, False], ids=["posix", "windows"])
def test_a_signal_calls_the_function_on_the_event_loop(
    loop_has_handlers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_on_windows(self, number, call):
        raise NotImplementedError

    async def wait_for_a_signal() -> bool:
        if not loop_has_handlers:
            kind = type(asyncio.get_running_loop())
            monkeypatch.setattr(kind, "add_signal_handler", not_on_windows)
        came = asyncio.Event()
        on_signal(signal.SIGTERM, came.set)
        signal.raise_signal(signal.SIGTERM)
        return await asyncio.wait_for(came.wait(), 10)

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert asyncio.run(wait_for_a_signal())
    finally:
        signal.signal(signal.SIGTERM, before)
