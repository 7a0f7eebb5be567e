"""Running what somebody else wrote: whatever it does becomes words about the case it was given.

Three things go wrong in a function that is being written: it is not written yet, it raises, it never
ends. A clock would make the third a matter of the machine, so lines are counted instead.
"""

import dis
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from checks.broken import Broken

MOST_LINES = 100_000  # that a learner's part may run in one case

_NOTHING = {
    "RESUME",
    "NOP",
    "CACHE",
    "COPY_FREE_VARS",
    "LOAD_CONST",
    "RETURN_CONST",
    "RETURN_VALUE",
}
# What Python adds to a coroutine's body of its own accord.
_NOTHING_OF_A_COROUTINE = {"RETURN_GENERATOR", "POP_TOP", "CALL_INTRINSIC_1", "RERAISE"}


class NotWrittenError(Exception):
    """The part is still the stub that the lesson gave."""


class _EndlessError(BaseException):
    """Not an Exception: a learner's own `except Exception` must not catch it."""


def is_stub(function: Callable[..., Any]) -> bool:
    """Whether a function does nothing: its body is a docstring, `...`, `pass` or `return None`."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    nothing = _NOTHING
    if code.co_flags & inspect.CO_COROUTINE:
        nothing = _NOTHING | _NOTHING_OF_A_COROUTINE
    done = list(dis.get_instructions(code))
    # `return 0` is an answer already; `return None` may be what a stub does at its end.
    returned = [one.argval for one in done if one.opname in ("LOAD_CONST", "RETURN_CONST")]
    return {one.opname for one in done} <= nothing and set(returned) <= {None}


def stubs(part: Any) -> list[str]:
    """The functions of a part that are not written yet: its own name, or its methods'."""
    if not inspect.isclass(part):
        return [part.__name__] if is_stub(part) else []
    own = {name: value for name, value in vars(part).items() if isinstance(value, FunctionType)}
    return [name for name, function in own.items() if is_stub(function)]


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a learner's function answers; it gets copies of the arguments.

    Raises Broken where it raises, does not end or changes what it was given, and NotWrittenError where
    it raises NotImplementedError.
    """
    given = deepcopy(arguments)
    with watched(function):
        answer = function(*given)
    names = list(inspect.signature(function).parameters)
    for name, before, after in zip(names, arguments, given, strict=False):
        if before != after:
            raise Broken(
                f"You changed {name}: it is {after!r} now.",
                "what was given stays as it was",
                "Whoever handed it to you goes on using it.",
            )
    return answer


@contextmanager
def watched(part: Any) -> Iterator[None]:
    """Around anything that runs a learner's part, a class or an async function as well.

    Raises what `call` raises, except for changed arguments.
    """
    name, module = part.__name__ + ("" if inspect.isclass(part) else "()"), part.__module__
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_globals.get("__name__") != module:
            return None
        if event == "call" and _jumps_to_itself(frame.f_code):
            frame.f_trace_opcodes = True
        if event in ("line", "opcode"):
            count += 1
            if count > MOST_LINES:
                raise _EndlessError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    except Broken:
        raise
    except NotImplementedError as error:
        raise NotWrittenError(name) from error
    except _EndlessError as error:
        raise Broken(
            f"{name} was still running after {MOST_LINES:,} lines.",
            "it comes to an end",
            f"It went round and round {_where(error.__traceback__, module)}. "
            "What there changes from one turn to the next?",
        ) from None
    except RecursionError as error:
        raise Broken(
            f"{name} called itself until Python gave up.",
            "it comes to an end",
            f"Look {_where(error.__traceback__, module)}: what gets smaller with each call?",
        ) from None
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise Broken(
            f"{name} raised {told}.",
            "it has an answer for every case",
            f"It happened {_where(error.__traceback__, module)}.",
        ) from None
    finally:
        sys.settrace(before)


@cache
def _jumps_to_itself(code: CodeType) -> bool:
    """Whether there is a `while True: pass` in it: one jump, in which Python counts no lines."""
    instructions = dis.get_instructions(code)
    return any("JUMP" in one.opname and one.argval == one.offset for one in instructions)


def _where(traceback: TracebackType | None, module: str) -> str:
    """The last line of the learner's own that was running: "in line 4, `room -= 1`"."""
    place = ""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_globals.get("__name__") == module:
            line = linecache.getline(frame.f_code.co_filename, traceback.tb_lineno).strip()
            place = f"in line {traceback.tb_lineno}" + (f", `{line}`" if line else "")
        traceback = traceback.tb_next
    return place or "before your first line ran: the parameters have to be those of the stub"
