"""What a log knows, in words: the twin of `visualizer/frontend/src/model/knowledge.ts`.

`knowledge.json` beside this file has one noun for each fact; all surfaces use it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.log import EventLog
from engine.core.log.vocabulary import Keyframe
from engine.simulation.facts import FACTS, Fact, Knowledge, knowledge

WORDS: dict[str, Any] = json.loads(Path(__file__).with_name("knowledge.json").read_text("utf-8"))
UNKNOWN: str = WORDS["unknown"]
_LEVELS: tuple[Knowledge, ...] = ("recorded", "inferred", "unknown")


@dataclass(frozen=True)
class LogKnowledge:
    """How a log knows each fact. Its repr lists recorded, inferred and unknown facts in words.

    source  `run_started.source`; empty for a log of this project's engine, which records all facts
    """

    source: Mapping[str, Any]

    def of(self, fact: Fact) -> Knowledge:
        """Return "recorded", "inferred" or "unknown". Raises ValueError for another name."""
        if fact not in FACTS:
            raise ValueError(f"fact must be one of {', '.join(FACTS)}, got {fact!r}")
        return knowledge(self.source, fact)

    def lacks(self, *facts: Fact) -> bool:
        """Return whether at least one of the facts is unknown."""
        return any(knowledge(self.source, fact) == "unknown" for fact in facts)

    def facts(self, level: Knowledge) -> list[Fact]:
        """Return the facts that are known in this way."""
        return [fact for fact in FACTS if knowledge(self.source, fact) == level]

    @property
    def origin(self) -> str:
        """The engine and its recorder: "vLLM 0.32.0, recorded with underglass-vllm 1"."""
        return origin(self.source)

    def missing(self, fact: Fact) -> str:
        """Return the sentence that says that the log does not have an unknown fact."""
        hashed = fact in ("token_ids", "texts") and self.lacks("token_ids")
        is_hashed = hashed and knowledge(self.source, "prefix_tree") == "recorded"
        message: str = WORDS["missing_hashed" if is_hashed else "missing"]
        noun = str(WORDS["facts"][fact]).capitalize()
        return message.format(fact=noun, recorder=self.source.get("recorder", ""))

    def __repr__(self) -> str:
        if not self.source:
            return "Underglass recorded this log. It has all facts."
        lines = [f"{self.origin}. {WORDS['legend']}"]
        for level in _LEVELS:
            words = ", ".join(WORDS["facts"][fact] for fact in self.facts(level))
            lines.append(f"{level:10}{words or 'none'}")
        return "\n".join(lines)


def steps_before(log: EventLog) -> int:
    """Return how many steps a log leaves out at its beginning: it begins with a keyframe then."""
    return log[0].state.step if len(log) and isinstance(log[0], Keyframe) else 0


def part_words(log: EventLog, name: str = "the log") -> str | None:
    """Say that the log's figures are those of a part of the run; None if they are not."""
    before = steps_before(log)
    return str(WORDS["part_why"].format(name=name, before=f"{before:,}")) if before else None


def half_dot(source: Mapping[str, Any], fact: Fact) -> str:
    """Return the mark before a statement if its fact is inferred, otherwise ""."""
    return str(WORDS["half_dot"]) if knowledge(source, fact) == "inferred" else ""


def gap_words(count: int, message: str) -> str:
    """Say how many messages of a log are missing, and why: "7 messages are missing here"."""
    verb = "is" if count == 1 else "are"
    noun = "message" if count == 1 else "messages"
    messages = f"{count:,} {noun} {verb}" if count else "messages are"
    why = f": {message}" if message else ""
    return str(WORDS["gap"].format(messages=messages, why=why))


def origin(source: Mapping[str, Any]) -> str:
    """Return the engine and the recorder of a foreign log; "" for a log of this project's engine."""
    return str(WORDS["source"].format(**source)) if source else ""
