"""Signals on the event loop, on every system."""

import asyncio
import signal
from collections.abc import Callable


def on_signal(number: int, call: Callable[[], None]) -> None:
    """Call a function on the running event loop when the process gets a signal. For the main thread."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, call)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(call))
