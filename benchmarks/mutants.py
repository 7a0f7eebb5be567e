"""Mutation testing: how many small faults in scheduler, caches and fold do the tests find?

`run` changes one operator, constant, condition or statement at a time and runs the tests until one
of them fails. The faults that no test finds are holes in the tests. `compare` reads two results, so a
smaller test suite can show that it still finds what the larger one found:

    make mutants ARGS="run before.jsonl"
    make mutants ARGS="run after.jsonl --died-in before.jsonl"
    make mutants ARGS="compare before.jsonl after.jsonl"

Collecting the tests takes far longer than finding a fault, so it happens once: each mutant is a forked
child of the process that has collected them (which Windows cannot do). The child replaces the code of
the changed function where it is, so that every reference to the function runs the mutant. Then it runs
the test files that reach the changed statement, and first those that reach much in little time. What a
test module computes while it is imported stays unchanged, and so does the code of a class or module
outside of functions, which includes the defaults of arguments.

A mutant is named by its file, function, operator and statement. The sample is drawn by a hash of that
name, so code that changes elsewhere changes neither names nor sample, and its start is a sample, too.

Differs from mutmut and Cosmic Ray, which number mutants by position, draw no fixed sample, and start or
import anew for each mutant.
"""

import ast
import builtins
import contextlib
import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from types import CodeType, FunctionType
from typing import Annotated, Any

import hypothesis
import pytest
import typer

SCOPE = (
    "engine/core/scheduling/*.py engine/core/cache/*.py engine/core/log/fold.py "
    "engine/core/log/state.py engine/core/request.py engine/core/sampling_params.py "
    "engine/extensions/holds.py "
    "engine/extensions/kv_transfer.py engine/extensions/window_pages.py "
    "engine/extensions/grammars/constraint.py"
)
TESTS = "tests/engine tests/parity tests/sources"
WITH_MODELS = "tests/engine/compute tests/engine/text tests/engine/training"
SEED = 27
MEMORY = 8 << 30  # bytes per child, because a mutant may append to a list forever
CPU_SECONDS = 150  # per child; an endless loop in one test is ended much earlier
DIED = ("killed", "timeout", "crashed")

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
Put = Callable[[ast.AST], None]
_LEFT_OUT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)  # texts of errors, defaults
_FIELDS_LEFT_OUT = ("annotation", "returns", "decorator_list")


@dataclass
class Mutant:
    """A change of one file: `put` places `replacement` into the file's tree."""

    file: str
    name: str
    line: int  # of the changed statement
    tree: ast.Module
    put: Put
    replacement: ast.AST


def mutants() -> list[Mutant]:
    """Return every mutant, in the order in which samples are drawn."""
    found, names = [], Counter[str]()
    for file in _files():
        tree = _parsed(file)
        for function, definition in _functions(tree):
            for field, node, put, statement in _places(definition, definition):
                for operator, replacement in _changes(field, node):
                    text = ast.unparse(statement).splitlines()[0]
                    name = f"{file} {function}: {operator} in {text}"
                    names[name] += 1
                    if names[name] > 1:
                        name += f" #{names[name]}"
                    found.append(Mutant(file, name, statement.lineno, tree, put, replacement))
    return sorted(found, key=lambda one: hashlib.sha256(f"{SEED} {one.name}".encode()).digest())


def _files() -> list[str]:
    return sorted(str(file) for pattern in SCOPE.split() for file in Path().glob(pattern))


def _parsed(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text("utf-8"))


def _functions(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the functions of a module or class. A nested function belongs to the outer one."""
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef) and child.name != "__repr__":
            yield prefix + child.name, child


def _places(parent: ast.AST, statement: ast.stmt) -> Iterator[tuple[str, Any, Put, ast.stmt]]:
    """Yield each node below `parent`: its field, itself, how to replace it, and its statement."""
    for field, value in ast.iter_fields(parent):
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            is_left_out = field in _FIELDS_LEFT_OUT or isinstance(node, _LEFT_OUT)
            if isinstance(node, ast.AST) and not is_left_out:
                in_list = isinstance(value, list)
                put = (
                    partial(value.__setitem__, index)
                    if in_list
                    else partial(setattr, parent, field)
                )
                within = node if isinstance(node, ast.stmt) else statement
                yield field, node, put, within
                yield from _places(node, within)


def _changes(field: str, node: Any) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may replace a node that is the `field` of its parent."""
    if swap := _SWAPS.get(type(node)):
        yield f"{type(node).__name__} to {swap.__name__}", swap()
    is_negated_elsewhere = False  # by a swap, or by removing `not`
    match node:
        case ast.Compare(
            ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]
        ):
            is_negated_elsewhere = True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            is_negated_elsewhere = True
            yield "without not", operand
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield f"{value} to {value + 1}", ast.Constant(value + 1)
            yield f"{value} to {value - 1}", ast.Constant(value - 1)
        case ast.Name(id=called) if field == "func" and called in _CALLS:
            yield f"{called} to {_CALLS[called]}", ast.Name(_CALLS[called], ast.Load())
        case ast.Return(value=ast.expr()) if ast.unparse(node) != "return None":
            yield "None returned", ast.Return(None)
        case ast.Expr(value=ast.Call()) if "super()" in ast.unparse(node):
            pass  # without it, the function has another closure
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete():
            yield "removed", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "removed", ast.Pass()
    if field in ("test", "ifs") and isinstance(node, ast.expr) and not is_negated_elsewhere:
        yield "negated", ast.UnaryOp(ast.Not(), node)


class Code:
    """The live functions of the mutated files, whose code can be replaced."""

    def __init__(self) -> None:
        for file in _files():
            importlib.import_module(file.removesuffix(".py").replace("/", "."))
        files = {str(Path(file).resolve()): file for file in _files()}
        self.functions = defaultdict[str, list[FunctionType]](list)
        for live in gc.get_objects():
            if type(live) is FunctionType and live.__code__.co_filename in files:
                self.functions[files[live.__code__.co_filename]].append(live)

    def replace(self, file: str, tree: ast.Module) -> None:
        """Let the functions of a file run what the tree says."""
        compiled = compile(ast.fix_missing_locations(tree), str(Path(file).resolve()), "exec")
        codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compiled)}
        for live in self.functions[file]:
            live.__code__ = codes[live.__code__.co_qualname, live.__code__.co_firstlineno]

    def record(self) -> set[str]:
        """Let each statement add its file and line to the returned set when it runs."""
        reached = set[str]()
        builtins.__reached__ = reached.add  # type: ignore[attr-defined]
        for file in self.functions:
            tree = _parsed(file)
            for _, definition in _functions(tree):
                for node in ast.walk(definition):
                    for field in ("body", "orelse", "finalbody"):
                        if isinstance(block := getattr(node, field, None), list):
                            marked = [part for one in block for part in (_mark(file, one), one)]
                            setattr(node, field, marked)
            self.replace(file, tree)
        return reached


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _mark(file: str, statement: ast.stmt) -> ast.stmt:
    call = ast.parse(f"__reached__('{file}:{statement.lineno}')").body[0]
    return ast.copy_location(call, statement)


Send = Callable[[dict[str, Any]], None]


class Judge:
    """A pytest plugin that collects the tests once and then forks a child for each mutant."""

    def __init__(self, chosen: list[Mutant], out: Path, workers: int, seconds: float) -> None:
        self.chosen = chosen
        self.out = out
        self.limits = workers, time.monotonic() + seconds
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants instead of the tests, and write each result as a line of JSON."""
        self.code = Code()
        self.files = defaultdict[str, list[pytest.Item]](list)
        for item in session.items:
            self.files[item.nodeid.partition("::")[0]].append(item)
        self.seconds = dict[str, float]()
        self.reached = dict[str, set[str]]()
        self.cost = dict[str, float]()
        failing = list[str]()
        for file, result in in_children(self.files, self.measure, *self.limits):
            self.seconds |= result.get("tests", {})
            self.reached[file] = result.get("reached", set())
            self.cost[file] = sum(result.get("tests", {}).values()) / (len(self.reached[file]) or 1)
            failing += result.get("failed", [f"{file}: {result}"])
        print(f"\n{len(self.seconds)} tests, without these, which fail without a mutant: {failing}")
        for file, items in self.files.items():
            self.files[file] = [item for item in items if item.nodeid not in failing]
        counts = Counter[str]()
        with self.out.open("w", encoding="utf-8") as lines:
            for mutant, result in in_children(self.chosen, self.judge, *self.limits):
                counts[result["status"]] += 1
                line = {"mutant": mutant.name, "line": mutant.line} | result
                print(json.dumps(line), file=lines, flush=True)
        print(f"{counts.total()} of {len(self.chosen)} mutants ran: {dict(counts)}")
        return True

    def measure(self, file: str, send: Send) -> None:
        """Run one file's tests without a mutant: their CPU seconds, failures and what they reach."""
        reached = self.code.record()
        tests = {item.nodeid: seconds for item, seconds in self._run(self.files[file], send)}
        send({"status": "measured", "tests": tests, "failed": self.failed, "reached": reached})

    def judge(self, mutant: Mutant, send: Send) -> None:
        """Run the tests that reach the mutant until one fails."""
        mutant.put(mutant.replacement)  # in the tree of this process
        self.code.replace(mutant.file, mutant.tree)
        mark = f"{mutant.file}:{mutant.line}"
        files = [file for file, reached in self.reached.items() if mark in reached]
        files.sort(key=self.cost.__getitem__)
        for _ in self._run([item for file in files for item in self.files[file]], send):
            if self.failed:
                return send({"status": "killed", "by": self.failed[0]})
        return send({"status": "survived", "by": f"none of {len(files)} test files"})

    def _run(self, items: list[pytest.Item], send: Send) -> Iterator[tuple[pytest.Item, float]]:
        """Run tests one by one. One that takes far longer than it should ends the process."""

        def end(*_: object) -> None:
            send({"status": "timeout", "by": item.nodeid})
            os._exit(0)

        signal.signal(signal.SIGPROF, end)
        for item, following in zip(items, [*items[1:], None], strict=False):
            signal.setitimer(signal.ITIMER_PROF, 5 + 4 * self.seconds.get(item.nodeid, CPU_SECONDS))
            start = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item, time.process_time() - start


def in_children(
    jobs: Iterable[Any], work: Callable[[Any, Send], None], workers: int, deadline: float
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Do each job in a forked child. Yield what it sends, with the `seconds` that it took.

    A child that ends without a result has crashed, or has reached `CPU_SECONDS`. At the deadline the
    children that still run are ended, and no result of theirs is yielded.
    """
    fork, queue = multiprocessing.get_context("fork"), iter(jobs)
    running: dict[Any, tuple[Any, Any, float]] = {}  # by the end of its pipe: job, process, start
    with tempfile.TemporaryDirectory() as folder:
        while True:
            while len(running) < workers and (job := next(queue, None)) is not None:
                pipe, sender = fork.Pipe(duplex=False)
                child = fork.Process(target=_child, args=(work, job, sender, folder))
                child.start()
                sender.close()
                running[pipe] = job, child, time.monotonic()
            if not running:
                return
            ended: list[Any] = wait(running, max(0, deadline - time.monotonic()))
            for pipe in ended or list(running):
                job, child, start = running.pop(pipe)
                result = {"status": "crashed", "by": ""}
                with contextlib.suppress(EOFError):
                    result = pipe.recv() if ended else {}
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # also ends what its tests have started
                child.join()
                if child.exitcode == -signal.SIGXCPU:
                    result["status"] = "unfinished"
                if ended:
                    yield job, result | {"seconds": round(time.monotonic() - start, 2)}
            if not ended:
                return


def _child(work: Any, job: Any, sender: Any, folder: str) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(dir=folder)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        work(job, sender.send)
    except BaseException:
        sender.send({"status": "broken", "by": traceback.format_exc()})
    os._exit(0)


app = typer.Typer(help=__doc__, add_completion=False)


@app.command()
def run(
    out: Path,
    tests: Annotated[list[str] | None, typer.Argument()] = None,
    *,
    sample: int = 500,
    workers: int = os.cpu_count() or 1,
    seconds: float = 7200,
    died_in: Path | None = None,
) -> None:
    """Run a sample of the mutants, or those that died in an earlier result, and write OUT."""
    chosen = mutants()[:sample]
    if died_in:
        old = _read(died_in)
        chosen = [one for one in mutants() if old.get(one.name, {}).get("status") in DIED]
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],  # any failure will do
    )
    hypothesis.settings.load_profile("mutants")
    options = [f"--ignore={folder}" for folder in WITH_MODELS.split()]
    options += "-q -s -p no:cacheprovider -p no:xdist --timeout=100".split()
    judge = Judge(chosen, out, workers, seconds)
    pytest.main([*options, *(tests or TESTS.split())], plugins=[judge])


@app.command()
def compare(before: Path, after: Path) -> None:
    """Fail if a mutant that died in BEFORE survives in AFTER."""
    old, new = _read(before), _read(after)
    for file, results in ((before, old), (after, new)):
        print(f"{file}: {dict(Counter(result['status'] for result in results.values()))}")
    died = [name for name, result in old.items() if result["status"] in DIED]
    absent = [name for name in died if name not in new]
    alive = [name for name in died if name in new and new[name]["status"] not in DIED]
    print(f"{len(died)} died before. {len(absent)} of them are absent after:", *absent, sep="\n  ")
    print(f"{len(alive)} of them survive:")
    for name in alive:
        print(f"  {name}\n    died before in {old[name]['by']}")
    raise typer.Exit(bool(alive))


def _read(file: Path) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, file.read_text("utf-8").splitlines())
    return {line["mutant"]: line for line in lines}


if __name__ == "__main__":
    app()
