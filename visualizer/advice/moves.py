"""Which settings are worth a try, in which order, and what they are called elsewhere.

Requests say what they waited for. More of that comes first; then what divides a step otherwise. More
memory and more replicas need hardware, so they come last.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.cluster import ROUTERS
from engine.core.config import EngineConfig
from engine.core.declared import settings_of
from engine.core.log import vocabulary as v
from visualizer.advice.goal import Goal
from visualizer.advice.replays import Replays
from visualizer.reading.waterfall.causes import FOR_BLOCKS

Line = tuple[str, list[Any]]  # a setting, and values further and further from the one that it has

HARDWARE = {"max_kv_tokens", "replicas"}
# The settings of a cluster are no fields of EngineConfig. How many engines there are, elsewhere:
_CLUSTER = {
    "replicas": {"vllm": "`--data-parallel-size`", "sglang": "`--dp-size`"},
    "router": dict[str, str](),
}
_POLICIES = {"vllm": ("fcfs", "priority"), "sglang": ("fcfs", "lpm")}
_OWN_POLICIES = ("fcfs", "priority", "sjf", "lpm", "fair")
_DRAFTS = {  # how to set `draft_length`, and that there are none
    "": ("--draft-length {}", "no --drafter"),
    "vllm": ("num_speculative_tokens={} in --speculative-config", "no --speculative-config"),
    "sglang": ("--speculative-num-draft-tokens {}", "no --speculative-algorithm"),
}
_LEAST = 0.02  # of all waiting: a cause of less is not worth a try


def lines(runs: Replays, waited: Mapping[str, int], goals: Sequence[Goal]) -> Iterator[Line]:
    """Yield lines of values, the most promising first.

    waited  how long requests waited, by cause
    """
    config = runs.config
    whole = sum(waited.values()) or 1
    share = {cause: time / whole for cause, time in waited.items()}
    seats, budget, limit = (
        config.max_batch_size,
        config.token_budget,
        config.long_prefill_token_threshold,
    )
    memory = sum(share.get(cause, 0.0) for cause in FOR_BLOCKS)
    # vLLM has at least as many tokens in its budget as seats.
    more_seats = "max_batch_size", [one for by in (2, 4, 8) if (one := by * seats) <= budget]
    fewer_seats = "max_batch_size", [seats * 3 // 4, seats // 2, seats // 4]
    larger = "token_budget", [2 * budget, 4 * budget, 8 * budget]
    smaller = "token_budget", [one for by in (2, 4, 8) if (one := budget // by) >= seats]
    chunks = "long_prefill_token_threshold", [(limit or budget) // by for by in (2, 4, 8)]
    whole_prompts = "long_prefill_token_threshold", [0] * bool(limit)
    watermark = "watermark", [config.watermark + one for one in (0.05, 0.1, 0.2)]
    other = {"whole": "first_chunk", "first_chunk": "whole"}[config.admission]
    blocks = "max_kv_tokens", [round(config.max_kv_tokens * by) for by in (1.25, 1.5, 2.0)]

    found: list[tuple[float, Line]] = []
    found.append((share.get("batch_full", 0.0), more_seats))
    stalls = share.get("token_budget", 0.0)
    found += [(stalls, larger), (stalls / 2, chunks), (stalls / 2, whole_prompts)]
    found += [
        (memory, fewer_seats),
        (memory * 0.9, watermark),
        (memory * 0.5, ("admission", [other])),
    ]
    if length := runs.draft_length:
        found.append((_in_vain(runs), ("draft_length", [*dict.fromkeys((length // 2, 1, 0))])))
    found.append((0.01, ("chunked_prefill", [True] * (not config.chunked_prefill))))
    found.append((0.3, ("policy", _policies(runs))))
    found += [(0.3, ("router", [one])) for one in ROUTERS if runs.router not in ("", one)]
    if config.prefix_cache == "off":
        found.append((0.5, ("prefix_cache", ["hash" if _engine(runs) == "vllm" else "radix"])))
    if config.scheduler != "vllm":
        now = config.schedule_conservativeness
        found.append((memory, ("schedule_conservativeness", [now * 1.5, now * 2, now / 2])))
    if any(goal.measure in ("itl", "tpot", "e2e") for goal in goals):
        found += [(0.8, smaller), (0.7, chunks), (0.2, fewer_seats)]
    for weight, line in sorted(found, key=lambda one: -one[0]):
        if line[1] and weight > 0:
            yield line
    if memory > _LEAST:
        yield blocks
    if any(goal.limit for goal in goals):  # else more of them are always better
        yield "replicas", sorted({runs.replicas + 1, 2 * runs.replicas, 4 * runs.replicas})


def _in_vain(runs: Replays) -> float:
    """Return which share of the computed tokens are drafts that were not accepted."""
    planned = [row for log in runs.logs for one in log.each(v.StepScheduled) for row in one.rows]
    rows = [row for log in runs.logs for one in log.each(v.StepFinished) for row in one.tokens]
    rejected = sum(len(row.drafts) for row in planned) - sum(row.accepted for row in rows)
    return rejected / max(1, sum(row.count for row in planned))


def _policies(runs: Replays) -> list[str]:
    """The policies that would order these requests otherwise."""
    names = _POLICIES.get(_engine(runs), _OWN_POLICIES)
    arrived = [one for log in runs.logs for one in log.each(v.RequestArrived)]
    useless = {
        "priority": len({one.priority for one in arrived}) < 2,
        "fair": len({one.label for one in arrived}) < 2,
        runs.config.policy: True,
    }
    return [name for name in names if not useless.get(name, False)]


def _engine(runs: Replays) -> str:
    """Return "vllm" or "sglang" for a recording of one of them, else ""."""
    engine = str(runs.started.source.get("engine", "")).lower()
    return next((name for name in _POLICIES if name in engine), "")


def how(changes: Mapping[str, Any], engine: str, block_size: int) -> str:
    """Return how to set changes in an engine ("vllm", "sglang"; "" for this one)."""
    flags = _CLUSTER | {one.name: one.extra for one in settings_of(EngineConfig)}
    return " ".join(
        _flag(flags.get(name, {}).get(engine), name, value, engine, block_size)
        for name, value in changes.items()
    )


def _flag(known: Any, name: str, value: Any, engine: str, block_size: int) -> str:
    if not engine:
        return f"--{name.replace('_', '-')} {value_words(value)}"
    if isinstance(known, dict):
        known = known.get(value)
    if name == "draft_length":
        most, none = _DRAFTS[engine]
        return most.format(value) if value else none
    if engine == "vllm" and name == "max_kv_tokens":
        return f"--num-gpu-blocks-override {value // block_size + 1}"  # vLLM's block 0 is no block
    flags = re.findall(r"`(--[a-z][^`]*)`", str(known))
    if not flags or str(known).startswith("–"):
        return f"{name}={value_words(value)} (no flag of {engine})"
    flag = str(flags[0])
    takes = not (isinstance(value, bool) or " " in flag or flag.startswith("--no-"))
    return f"{flag} {value_words(value)}" if takes and not isinstance(value, str) else flag


def value_words(value: Any) -> str:
    """Return a value as a person writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
