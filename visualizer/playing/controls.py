"""The playground's controls: a widget for each setting, in two groups that wrap as the page is wide.

They are the usual kinds (sliders with a field to type in, lists, boxes to tick), so that each can be
reached and moved by keyboard. The tooltip says what a setting does.
"""

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from visualizer.playing.rerun import POLICY_NAMES

ENGINE = {
    "token_budget": ("token budget", "tokens computed in one step, over all requests"),
    "max_batch_size": ("batch size", "requests that run at once"),
    "max_kv_tokens": ("memory", "token slots of KV memory"),
    "block_size": ("block size", "token slots in a KV block"),
    "policy": ("policy", "who is next in the queue"),
    "batching": ("batching", "static: a batch runs until its last member has finished"),
    "chunked_prefill": ("chunked prefill", "a prompt may be cut to fit into a step's budget"),
    "prefix_cache": ("prefix cache", "computed blocks are kept and found again"),
    "preemption": ("preemption", "memory is promised before it is there, and taken back"),
}
TRAFFIC = {
    "requests": ("requests", "how many come"),
    "rate": ("arrival rate", "requests per second, on average"),
    "prompt_tokens": ("prompt length", "tokens, on average"),
    "output_tokens": ("output length", "tokens, on average"),
    "shared": ("shared prefix", "percent of the average prompt that all begin with"),
    "seed": ("seed", "another number, other luck"),
}
RUNS_ON = {"model": ("runs on", "a pretend machine answers at once; the model writes real text")}

NAMES = {name: label for name, (label, _) in (ENGINE | TRAFFIC | RUNS_ON).items()}

_RANGES = {  # least, most, step
    "token_budget": (4, 256, 1),
    "max_batch_size": (1, 32, 1),
    "max_kv_tokens": (64, 2048, 8),
    "requests": (1, 60, 1),
    "rate": (1, 200, 1),
    "prompt_tokens": (1, 200, 1),
    "output_tokens": (1, 120, 1),
    "shared": (0, 100, 5),
}
_CHOICES: dict[str, list[tuple[str, Any]]] = {
    "block_size": [(str(size), size) for size in (1, 2, 4, 8, 16, 32)],
    "policy": [(name, name) for name in POLICY_NAMES],
    "batching": [("continuous", "continuous"), ("static", "static")],
    "model": [("a pretend machine", False), ("the bundled model", True)],
}
_CELL = {"width": "auto", "margin": "0"}
_LABEL = {"description_width": "96px"}


def build(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A control for each setting that has one, by name, showing its value."""
    titles = ENGINE | TRAFFIC | RUNS_ON
    return {
        name: _control(name, *titles[name], settings[name]) for name in titles if name in settings
    }


def laid_out(controls: Mapping[str, Any]) -> Any:
    """The controls in their groups."""
    groups = [
        ("Engine", [name for name in ENGINE if name in controls]),
        ("Traffic", [name for name in (*TRAFFIC, *RUNS_ON) if name in controls]),
    ]
    boxes = []
    for title, names in groups:
        heading = widgets.HTML(f"<h4>{title}</h4>", layout={"margin": "0"})
        heading.add_class("underglass-heading")
        grid = widgets.GridBox(
            [controls[name] for name in names],
            layout={
                "grid_template_columns": "repeat(auto-fill, minmax(270px, 1fr))",
                "grid_gap": "2px 28px",
                "width": "100%",
            },
        )
        boxes += [heading, grid]
    return widgets.VBox(boxes)


def _control(name: str, label: str, tooltip: str, value: Any) -> Any:
    common = {"description": label, "tooltip": tooltip, "layout": _CELL, "style": _LABEL}
    if name in _CHOICES:
        options = _CHOICES[name]
        if value not in [choice for _, choice in options]:
            options = [*options, (str(value), value)]
        return widgets.Dropdown(options=options, value=value, **common)
    if isinstance(value, bool):
        return widgets.Checkbox(value=value, **(common | {"style": {"description_width": "0"}}))
    if name == "seed":
        return widgets.BoundedIntText(value=value, min=0, max=9999, **common)
    least, most, step = _RANGES[name]
    if (value - least) % step:
        step = 1
    return widgets.IntSlider(
        value=value, min=min(least, value), max=max(most, value), step=step, **common
    )
