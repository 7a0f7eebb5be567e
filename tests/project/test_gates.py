"""Right parts pass the gates. A part that leaks, cheats, loops or raises fails, and is named."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

import solutions
from project import gates
from project.gates import GATES
from project.learner import PARTS, MineError, Source
from project.process import Process, isolates
from project.runs import serve
from project.solutions import ours
from project.workloads import WORKLOADS
from tests.facts import assert_names, raises_naming

GATE = {gate.name: gate for gate in GATES}
NEEDS_NAMESPACES = pytest.mark.skipif(not isolates(), reason="the system isolates no process")


def source(code: str) -> Source:
    return Source("mine.py", dedent(code))


def solution(lesson: str) -> str:
    """The solution of a lesson, without its docstring."""
    text = (Path(solutions.__path__[0]) / f"lesson_{lesson}.py").read_text(encoding="utf-8")
    return re.sub(r'^""".*?"""\n', "", text, flags=re.DOTALL)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_the_solutions_of_the_lessons_pass_together(gate):
    lessons = [PARTS[name] for name in gate.parts if PARTS[name].isdigit()]
    mine = source("\n".join(map(solution, lessons)))
    assert mine.load().parts.keys() >= {one for one in gate.parts if one != "order"}
    assert gate.failure(mine) is None


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_the_template_and_our_solution_pass(gate):
    assert gate.failure(Source.read(Path(gates.__file__).parent / "template.py")) is None
    assert gate.failure(Source.read(Path(ours.__file__))) is None


LEAKING_POOL = solution("05").replace("self.holders[block] == 0", "False")
BROKEN = {
    # a leak and a cheat that the check of the lesson finds
    ("places", LEAKING_POOL): ["BlockPool", "05"],
    ("tokens", solution("02").replace("> positions", "> positions + 1")): ["attend", "02"],
    ("clients", "def accept(p, q, drafts, uniforms, pick): return [*drafts, pick(p[-1])]"): [
        "accept",
        "14",
    ],
    ("reports", "def count_work(*work): return (0, 0)"): ["count_work", "03"],
    ("machines", "def route(*known): return 'Ada'"): ["replicas", "Ada"],
    # parts that may decide as they like, but decide nonsense
    ("places", "def admit(*queue): return [99]"): ["admit", 99, "Tight workload 1"],
    ("places", "def admit(*queue): return 1 / 0"): ["admit", "ZeroDivisionError", "line 1"],
    ("prefixes", "def choose_leaf(nodes): return 0"): ["choose_leaf", 0],
    ("prefixes", "def choose_leaf(nodes):\n    if nodes: return None"): ["choose_leaf", None],
    ("pressure", "def victim(running, needed_by): return 'Ada'"): ["victim", "Ada"],
    ("pressure", "def order(request):\n    if request.id: return None"): ["order", None],
    ("pressure", "def order(request): return float('nan')"): ["order", "nan"],
    ("pressure", "def pick_budget(*machine): return 80.0"): ["pick_budget", "token_budget", 80.0],
    # parts that never return
    ("pressure", "def order(request):\n    while True: pass"): ["order", "line 2"],
    ("pressure", "def victim(running, needed_by): return victim(running, needed_by)"): ["victim"],
}


@pytest.mark.parametrize(("gate", "code"), BROKEN, ids=lambda text: text.strip()[:40])
def test_a_wrong_part_fails_its_gate(gate, code):
    failure = GATE[gate].failure(source(code))
    assert failure is not None
    assert_names(failure, *BROKEN[gate, code])


def test_requests_that_preempt_each_other_for_ever_are_found(monkeypatch):
    from engine.core.engine import Engine, StepOutput

    step: Callable[..., object] = Engine.step
    monkeypatch.setattr(Engine, "step", lambda self: StepOutput(self.step_count))
    failure = GATE["pressure"].failure(source("def order(request): return 0"))
    monkeypatch.setattr(Engine, "step", step)
    assert failure is not None
    assert_names(failure, "request 1", "finishes", "Tight workload 1")


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("SETTINGS = {'policy': 'best'}", ["policy", "best"]),
        ("SETTINGS = 80", ["SETTINGS", 80]),
        ("SETTINGS = {'policy': print}", ["SETTINGS", "print"]),
        ("def admit(*queue): return print", ["admit", "print"]),
        ("def admit(*queue): 10**10**8", ["admit", "seconds"]),
        ("def admit(*queue): __import__('os')._exit(0)", ["admit", "ended"]),
        ("def order(request): return 1 / 0", ["order", "ZeroDivisionError", "documents", "line 1"]),
        (
            "class Outbox:\n    def __init__(self, limit): self.n = limit\n    def put(self, t): ...",
            ["put"],
        ),
        ("import no_such_module", ["mine.py", "no_such_module"]),
        pytest.param("open('mine.log', 'w')", ["Read-only"], marks=NEEDS_NAMESPACES),
        ("def order(request) return 0", ["mine.py", "line 1"]),
        ("A = 1\nwhile A: A += 1", ["mine.py", "line 2"]),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_mistake_in_the_file_is_named(code, facts, monkeypatch):
    documents = replace(WORKLOADS[1], requests=40)
    monkeypatch.setattr("project.process.CPU_SECONDS", 1)
    with raises_naming(MineError, *facts), Process(source(code)) as process:
        serve(process.load(), documents, 1)


def test_a_missing_file_is_named(tmp_path):
    with raises_naming(MineError, "nothing.py"):
        Source.read(tmp_path / "nothing.py")
