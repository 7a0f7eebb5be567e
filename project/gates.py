"""The gates: what has to hold before a score counts. A gate is an entry of GATES.

They run in the process of the learner's file; see `process.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import Any

from checks.broken import Broken
from checks.judging import judge
from checks.lesson_01 import YourDistribution
from engine import Engine, SamplingParams
from project.learner import PARTS, Mine, MineError, Source, said
from project.parts import config_of
from project.runs import serve
from project.tight import serve_all
from project.workloads import FLEET, WORKLOADS

Try = Callable[[Source], None]


@dataclass(frozen=True)
class Gate:
    """One gate.

    promise  what it tests, for the table
    exact    parts that must pass the check of their lesson
    free     parts that may decide otherwise than in their lesson
    attempt  raises Broken or MineError if the engine with these parts fails
    """

    name: str
    promise: str
    exact: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    attempt: Try | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that this gate tests."""
        return self.exact + self.free

    def failure(self, source: Source) -> str | None:
        """Return what a learner's parts do wrong, or None if they pass."""
        parts = source.load().parts
        try:
            for name in self.exact:
                if name in parts:
                    lesson = import_module(f"checks.lesson_{PARTS[name]}")
                    verdict = judge(parts[name], lesson.cases(), lesson.attempt)
                    if verdict.broken is not None:
                        return (
                            f"{name} (lesson {PARTS[name]}): {verdict.case} {said(verdict.broken)}"
                        )
            if self.attempt is not None and parts.keys() & set(self.parts):
                self.attempt(source)
        except Broken as broken:
            return said(broken)
        except MineError as error:
            return str(error)
        return None


PROMPTS = [
    f"{beginning} {animal}"
    for beginning in ("Once upon a time there was a", "The old", "One day a", "Tell me about the")
    for animal in ("fox", "owl", "bear", "cat", "gull")
]
# Every second request samples among its one likeliest token, so that the probabilities count as well.
GREEDY = SamplingParams(max_tokens=12, temperature=0)
LIKELIEST = SamplingParams(max_tokens=12, temperature=1, top_k=1)


def _same_text(source: Source) -> None:
    """Compare the texts of 20 prompts."""
    from checks.attending import YourAttention  # it imports torch, which other gates do not need

    mine = source.load()
    parts: dict[str, Any] = {}
    if (attend := mine.guarded("attend")) is not None:
        parts["attention"] = type("Yours", (YourAttention,), {"attend": staticmethod(attend)})
    if (distribution := mine.guarded("distribution")) is not None:
        parts["logits_to_probs"] = YourDistribution(distribution)
    engine = Engine.load("bundled", **parts)
    params = [GREEDY, LIKELIEST] * (len(PROMPTS) // 2)
    answers = engine.complete(PROMPTS, params, progress=False)
    for prompt, answer, right in zip(PROMPTS, answers, _right(), strict=True):
        if answer.finish_reason == "error":
            raise Broken(
                f"The step failed: {answer.error}", "20 prompts are answered", "Look there."
            )
        if answer.text != right:
            raise Broken(
                f"After {prompt!r} your engine wrote {answer.text!r}.",
                "greedy text is that of the engine's own parts",
                f"The engine's own parts write {right!r}.",
            )


@cache
def _right() -> list[str]:
    answers = Engine.load("bundled").complete(PROMPTS, GREEDY, progress=False)
    return [answer.text for answer in answers]


SHORT_FLEET = replace(FLEET, requests=40)


def _finishes(source: Source) -> None:
    """Look at the settings, and serve 200 tight workloads with all parts that have a say in memory."""
    for kind in WORKLOADS:
        config_of(source.load(), kind)
    serve_all(source, _DECIDING + _PLACES + _PREFIXES, 200)


def _routes(source: Source) -> None:
    """Serve a part of the fleet's requests."""
    parts = source.load().parts
    serve(Mine({}, {"route": parts["route"]} if "route" in parts else {}), SHORT_FLEET, seed=0)


def _serves(names: tuple[str, ...]) -> Try:
    """Return a test that serves 50 tight workloads with these parts."""
    return partial(serve_all, names=names, count=50)


_PLACES, _PREFIXES = ("BlockPool", "admit"), ("split", "choose_leaf")
_DECIDING = ("pick_budget", "victim", "order")
GATES = (
    Gate(
        "tokens",
        "greedy text on 20 prompts",
        exact=("distribution", "attend"),
        attempt=_same_text,
    ),
    Gate(
        "places",
        "no block leaks, 50 tight workloads",
        exact=_PLACES[:1],
        free=_PLACES[1:],
        attempt=_serves(_PLACES),
    ),
    Gate(
        "prefixes",
        "text is the same with and without a cache, 50 tight workloads",
        exact=_PREFIXES[:1],
        free=_PREFIXES[1:],
        attempt=_serves(_PREFIXES),
    ),
    Gate("pressure", "200 tight workloads finish", free=_DECIDING, attempt=_finishes),
    Gate(
        "clients",
        "exact distribution, whole text in its shape, nothing after the end",
        exact=("accept", "Outbox", "mask", "Ahead"),
    ),
    Gate(
        "machines",
        "each request finds a replica that is alive; KV moves only if that is faster",
        exact=("fetch_or_compute", "fetch"),
        free=("route",),
        attempt=_routes,
    ),
    Gate(
        "reports",
        "logs and costs are read correctly",
        exact=("count_work", "report"),
    ),
)
