"""Run a learner's code safely: every failure becomes a message about the case.

A function in progress can be unwritten, raise, or never end. To detect the third, lines are counted: a
time limit would depend on the machine.
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

from checks.broken import Broken, CommonPromise

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
# Instructions that Python adds to the body of every coroutine.
_NOTHING_OF_A_COROUTINE = {"RETURN_GENERATOR", "POP_TOP", "CALL_INTRINSIC_1", "RERAISE"}


class NotWrittenError(Exception):
    """The part is still the lesson's stub."""


class _EndlessError(BaseException):
    """A BaseException, so that a learner's `except Exception` does not catch it."""


def is_stub(function: Callable[..., Any]) -> bool:
    """Whether a function does nothing: its body is a docstring, `...`, `pass` or `return None`."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    nothing = _NOTHING
    if code.co_flags & inspect.CO_COROUTINE:
        nothing = _NOTHING | _NOTHING_OF_A_COROUTINE
    done = list(dis.get_instructions(code))
    # `return 0` is an answer; `return None` may end a stub.
    returned = [one.argval for one in done if one.opname in ("LOAD_CONST", "RETURN_CONST")]
    return {one.opname for one in done} <= nothing and set(returned) <= {None}


def stubs(part: Any) -> list[str]:
    """Return the names of unwritten functions: the part itself, or methods of a class."""
    if not inspect.isclass(part):
        return [part.__name__] if is_stub(part) else []
    own = {name: value for name, value in vars(part).items() if isinstance(value, FunctionType)}
    return [name for name, function in own.items() if is_stub(function)]


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return a learner's function's answer to copies of the arguments.

    Raises Broken if the function raises, does not end or changes its arguments, and NotWrittenError if
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
                CommonPromise.UNCHANGED,
                "The caller still uses it.",
            )
    return answer


@contextmanager
def watched(part: Any) -> Iterator[None]:
    """Guard any use of a learner's part, including classes and async functions.

    Raises the same errors as `call`, except for changed arguments.
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
            CommonPromise.ENDS,
            f"It was looping {_where(error.__traceback__, module)}. "
            "What changes there from one iteration to the next?",
        ) from None
    except RecursionError as error:
        raise Broken(
            f"{name} called itself until Python gave up.",
            CommonPromise.ENDS,
            f"Look {_where(error.__traceback__, module)}: what gets smaller with each call?",
        ) from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise Broken(
            f"{name} raised {what}.",
            CommonPromise.ANSWERS,
            f"It happened {_where(error.__traceback__, module)}.",
        ) from None
    finally:
        sys.settrace(before)


@cache
def _jumps_to_itself(code: CodeType) -> bool:
    """Return whether the code has a `while True: pass`: one jump, without traced lines."""
    instructions = dis.get_instructions(code)
    return any("JUMP" in one.opname and one.argval == one.offset for one in instructions)


def _where(traceback: TracebackType | None, module: str) -> str:
    """Return the learner's line that ran last, as "in line 4, `seats -= 1`"."""
    where = ""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_globals.get("__name__") == module:
            line = linecache.getline(frame.f_code.co_filename, traceback.tb_lineno).strip()
            where = f"in line {traceback.tb_lineno}" + (f", `{line}`" if line else "")
        traceback = traceback.tb_next
    return where or "before your first line: the parameters have to be those of the stub"
