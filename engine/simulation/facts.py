"""The facts that a log may know, and how it knows each of them.

An engine of this project records every fact. A reader of another engine's trace
(`visualizer/sources/`) says for each one whether the producer *recorded* it, whether it is *inferred*
from recorded facts, or whether it is *unknown*. The board marks what is inferred and draws nothing
for what is unknown.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

Knowledge = Literal["recorded", "inferred", "unknown"]
Fact = Literal[
    "settings",  # token budget, seats, block size, policy
    "arrivals",  # when each request arrived, and its lengths
    "step_times",  # when each step began and ended
    "scheduled_tokens",  # how many tokens of which request each step computes
    "admissions",  # when a request left the queue
    "cached_tokens",  # how much of a prompt was found in the prefix cache
    "queue",  # which requests wait, in their order
    "waiting_reasons",  # why the head of the queue waits
    "preemptions",  # which request lost its blocks, and when
    "preemption_causes",  # which request needed them
    "finish_reasons",  # why a request ended
    "free_blocks",  # how many blocks are free
    "block_tables",  # which blocks a request uses
    "block_numbers",  # which physical block is which
    "prefix_tree",  # which prefixes are cached
    "evictions",  # which cached blocks were dropped, and when
    "eviction_causes",  # which request needed the memory
    "token_ids",  # of prompts and outputs
    "texts",  # of prompts and outputs
    "probabilities",  # of output tokens
]
FACTS: tuple[Fact, ...] = get_args(Fact)


def knowledge(source: Mapping[str, Any], fact: Fact) -> Knowledge:
    """Return how a log with this `run_started.source` knows a fact. A fact it omits is unknown."""
    if not source:
        return "recorded"
    known: Knowledge = source["facts"].get(fact, "unknown")
    return known


_NOT_SIMULATED: tuple[Fact, ...] = ("token_ids", "texts", "probabilities")


def simulated_facts(known: Mapping[Fact, Knowledge]) -> dict[Fact, Knowledge]:
    """Return how a simulation knows each fact: all but `known` is inferred, except for the tokens."""
    facts: dict[Fact, Knowledge] = dict.fromkeys(FACTS, "inferred")
    return {**facts, **dict.fromkeys(_NOT_SIMULATED, "unknown"), **known}
