"""The settings that the playground offers, as `EngineConfig` and `Traffic` declare them.

Four of them have words of their own and stand first; the others are behind "More".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.config import EngineConfig
from engine.core.declared import Setting, settings_of
from visualizer.playing.rerun import Traffic


@dataclass(frozen=True)
class Control:
    """A setting's control.

    choices   pairs of a label and a value
    limits    minimum, maximum and step
    unit      what follows the value
    phrase    the setting in a sentence, with the value in place of "{}"
    """

    name: str
    label: str
    explanation: str
    choices: list[tuple[str, Any]] | None = None
    limits: tuple[int, int, int] | None = None
    unit: str = ""
    phrase: str = ""

    def text(self, value: Any) -> str:
        """Return the value as the control shows it."""
        if isinstance(value, bool) and not self.choices:
            return "on" if value else "off"
        names = {choice: label for label, choice in self.choices or []}
        return names.get(value, f"{value:,g}" if isinstance(value, int | float) else str(value))

    def words(self, value: Any) -> str:
        """Return the setting in a sentence: "256 tokens in a step"."""
        text = self.text(value)
        return (self.phrase or f"{self.label} {{}}").format(text if self.limits else text.lower())


_OWN_WORDS = {
    "max_batch_size": ("Seats", "requests at once", "{} seats"),
    "token_budget": ("Token budget", "tokens in a step", "{} tokens in a step"),
    "max_kv_tokens": ("Memory", "tokens", "memory for {} tokens"),
    "policy": ("Who goes first?", "", "“{}” in the queue"),
}
_POLICIES = {
    "fcfs": "First come",
    "priority": "Most urgent",
    "sjf": "Shortest job",
    "lpm": "Longest hit",
    "fair": "Fair share",
}


def _control(setting: Setting) -> Control:
    choices = [(_POLICIES.get(value, value), value) for value in setting.choices]
    label, unit, phrase = _OWN_WORDS.get(setting.name, (setting.name.replace("_", " "), "", ""))
    limits = setting.extra.get("range")
    return Control(setting.name, label, setting.help, choices or None, limits, unit, phrase)


# The playground's requests have no grammar, so jump_forward would change nothing.
# A simulated machine writes no grammar, and stores no KV.
_WITHOUT_EFFECT = {"jump_forward", "kv_dtype"}
_ENGINE = [_control(one) for one in settings_of(EngineConfig) if one.name not in _WITHOUT_EFFECT]
_RUNS_ON = Control(
    "model",
    "runs on",
    "the simulated machine is fast; the model generates real text",
    [("a simulated machine", False), ("the bundled model", True)],
)
CONTROLS = {one.name: one for one in [*_ENGINE, *map(_control, settings_of(Traffic)), _RUNS_ON]}
MAIN = tuple(_OWN_WORDS)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ, in words, with their new values."""
    return [
        CONTROLS[name].words(value) if name in CONTROLS else f"{name} {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]
