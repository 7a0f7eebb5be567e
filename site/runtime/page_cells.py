"""Run a lesson's cells in a page, where Python is Pyodide and there is no Jupyter.

A cell's outputs are dicts that the page draws (`visualizer/frontend/src/site/outputs.ts`). `kind` says
what each one is:

    text      text of stdout or stderr (`stream`)
    html      markup of an object with `_repr_html_`
    board     a packed log, the options of the board's `mount`, and which module draws it
    question  a prediction: its key, its words, its options, and the reply to each of them
    reveal    the key of a prediction; the page shows the reply to the reader's guess here
    figure    a Plotly figure, which the page cannot draw; it shows the stored picture instead
    error     an exception: its name, message and traceback

The module does not import anything from Pyodide, so it can be tested with CPython.
"""

import ast
import contextlib
import inspect
import io
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import checks
from checks.answer import answer_to
from checks.prediction import Guess
from visualizer import draw_with
from visualizer.comparing.compared import Compared
from visualizer.comparing.compared_runs import compare_logs
from visualizer.logs import ClusterLogLike, LogLike, Select
from visualizer.packed import PackedLog, packed_log

Output = dict[str, Any]
Send = Callable[[Output], None]

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class _Page:
    """Where outputs go while a cell runs, and whether the reader has changed the lesson."""

    def __init__(self) -> None:
        self.send: Send = lambda _: None
        self.is_changed = False


_page = _Page()


class Board:
    """What `show` returns in a page: a packed log, and where its board opens."""

    def __init__(
        self,
        log: "LogLike | ClusterLogLike | Board",
        step: int | None = None,
        select: Select = "auto",
        *,
        at_ms: float | None = None,
        window: tuple[int, int] | None = None,
        range: tuple[int, int] | None = None,
        axis: str | None = None,
        slo: tuple[float, float] | None = None,
        panel: str = "",
        level: str = "all",
    ) -> None:
        self.log: LogLike | ClusterLogLike = log.log if isinstance(log, Board) else log
        self._packed = packed_log(self.log, step=step, at_ms=at_ms, select=select, level=level)
        more: dict[str, Any] = {
            "window": window and list(window),
            "range": range and list(range),
            "axis": axis,
            "slo": slo and {"ttft": 1000 * slo[0], "itl": 1000 * slo[1]},
            "only": panel or None,
        }
        self._packed.options.update(
            {name: value for name, value in more.items() if value is not None}
        )

    def packed(self) -> PackedLog:
        """Return the log with the board's options."""
        return self._packed


def _panel(name: str) -> Callable[..., Board]:
    def panel(log: Any, *args: Any, **options: Any) -> Board:
        return Board(log, *args, **options, panel=name)

    return panel


show, compare = Board, compare_logs
Timeline, BlockMap, RadixTree, Scheduler, Tokens = map(
    _panel, ("timeline", "blocks", "tree", "scheduler", "tokens")
)


class _Figures:
    """`visualizer.figures` without Plotly: each figure is the picture that the lesson stores."""

    def __getattr__(self, name: str) -> Callable[..., "_Figure"]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: _Figure()


class _Figure:
    def page_output(self) -> Output:
        return {"kind": "figure"}


figures = _Figures()


class PageGuess(Guess):
    """A prediction whose question, guess and reply belong to the page."""

    def reveal(self, value: Any) -> None:
        """Show the reply to the reader's guess, or say that a changed lesson has a different answer."""
        try:
            self.check(value)
        except ValueError:
            if not _page.is_changed:
                raise
            print(
                f"With your change, the answer is {value}. The options belong to the original cells."
            )
        else:
            _page.send({"kind": "reveal", "key": self.key})

    def page_output(self) -> Output:
        """Return the question, the reply to each option, and the reply to a reader without a guess."""
        right = answer_to(self.key)
        return {
            "kind": "question",
            "key": self.key,
            "question": self.question,
            "options": [str(option) for option in self.options],
            "replies": [right.reply_to(option) for option in self.options],
            "unanswered": right.reply_to(None),
        }


def display(*values: Any) -> None:
    """Send values to the page."""
    for value in values:
        send(_output(value))


def send(output: Output) -> None:
    """Send an output to the page."""
    _page.send(output)


def _output(value: Any) -> Output:
    if isinstance(value, Board | Compared):
        log, options, is_cluster = value.packed()
        module = "cluster" if is_cluster else "board"
        return {"kind": "board", "module": module, "log": log, "options": options}
    if hasattr(value, "page_output"):
        output: Output = value.page_output()
        return output
    if callable(markup := getattr(value, "_repr_html_", None)):
        return {"kind": "html", "html": markup()}
    return {"kind": "text", "stream": "result", "text": f"{value!r}\n"}


def install() -> None:
    """Make the lessons' imports return objects that a page can draw."""
    drawn = "show compare Board Timeline BlockMap RadixTree Scheduler Tokens figures"
    draw_with(__name__, drawn.split())
    vars(checks).update(predict=PageGuess, figures=figures)


class _Stream(io.TextIOBase):
    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, text: str) -> int:
        if text:
            _page.send({"kind": "text", "stream": self.name, "text": text})
        return len(text)


@contextlib.contextmanager
def _sent() -> Iterator[None]:
    """Send to the page what is printed.

    A cell that waits for ever ends when it is destroyed, in the middle of a later cell. The later
    cell's streams then stay, which `contextlib.redirect_stdout` would replace.
    """
    before = sys.stdout, sys.stderr
    own = sys.stdout, sys.stderr = _Stream("stdout"), _Stream("stderr")
    try:
        yield
    finally:
        if (sys.stdout, sys.stderr) == own:
            sys.stdout, sys.stderr = before


class Lesson:
    """The names and the cells of one lesson, as in a notebook's kernel."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "display": display}

    async def run(self, cell: int, source: str, send: Send, *, is_changed: bool = False) -> bool:
        """Run a cell, send its outputs, and return whether it ended without an exception.

        `is_changed` says whether the reader has changed a cell of this lesson. If so, `assert` does
        nothing, because the lesson's numbers may no longer be right.
        """
        _page.send, _page.is_changed = send, is_changed
        file = f"<cell {cell}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        with _sent():
            try:
                await self._run(source, file, optimize=int(is_changed))
            except BaseException as error:
                send(_error(error, file))
                return False
        return True

    async def _run(self, source: str, file: str, optimize: int) -> None:
        tree = ast.parse(source, file)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        await self._evaluate(tree, file, "exec", optimize)
        if last is not None:
            value = await self._evaluate(last, file, "eval", optimize)
            if value is not None:
                display(value)

    async def _evaluate(self, tree: Any, file: str, mode: str, optimize: int) -> Any:
        code = compile(tree, file, mode, _FLAGS, optimize=optimize)
        value = eval(code, self.names)
        # Only a cell with a top-level await is a coroutine; the value of the last line may be one, too.
        return await value if code.co_flags & inspect.CO_COROUTINE else value


def _error(error: BaseException, file: str) -> Output:
    """Return an exception without the frames of this module."""
    trace: types.TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    frames = traceback.extract_tb(trace)
    inside = [frame.lineno for frame in frames if frame.filename == file]
    line = inside[-1] if inside else getattr(error, "lineno", None)
    missing = error.name if isinstance(error, ModuleNotFoundError | NameError) else None
    return {
        "kind": "error",
        "name": type(error).__name__,
        "message": str(error),
        "trace": "".join(lines),
        "line": line,
        "missing": missing,
    }
