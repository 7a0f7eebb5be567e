"""The settings that the playground offers, as `EngineConfig` and `Traffic` declare them.

The controls in a notebook and on the site are both built from them.
"""

from dataclasses import dataclass
from typing import Any

from engine.core.config import EngineConfig
from engine.core.declared import Setting, settings_of
from visualizer.playing.rerun import Traffic


@dataclass(frozen=True)
class Control:
    """A setting's control: `choices` are (label, value), `limits` are minimum, maximum and step."""

    name: str
    label: str
    explanation: str
    choices: list[tuple[str, Any]] | None = None
    limits: tuple[int, int, int] | None = None


def _control(setting: Setting) -> Control:
    choices = [(value, value) for value in setting.choices]
    label, limits = setting.name.replace("_", " "), setting.extra.get("range")
    return Control(setting.name, label, setting.help, choices or None, limits)


# The playground's requests have no grammar, so jump_forward would change nothing.
ENGINE = [_control(one) for one in settings_of(EngineConfig) if one.name != "jump_forward"]
TRAFFIC = [_control(one) for one in settings_of(Traffic)]
RUNS_ON = Control(
    "model",
    "runs on",
    "the simulated machine is fast; the model generates real text",
    [("a simulated machine", False), ("the bundled model", True)],
)
GROUPS = {"Engine": ENGINE, "Traffic": [*TRAFFIC, RUNS_ON]}
NAMES = {one.name: one.label for group in GROUPS.values() for one in group}
