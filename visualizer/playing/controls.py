"""The playground's controls: one widget per setting, in two groups that wrap to fit the page.

They are standard ipywidgets (sliders with a text field, dropdowns, checkboxes), so they can be used
from the keyboard. A tooltip explains each setting.
"""

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from visualizer.playing.rerun import POLICY_NAMES

ENGINE = {
    "token_budget": ("token budget", "maximum tokens per step, over all requests"),
    "max_batch_size": ("batch size", "maximum number of running requests"),
    "max_kv_tokens": ("memory", "number of token slots in KV memory"),
    "block_size": ("block size", "number of token slots in a KV block"),
    "policy": ("policy", "order of the waiting queue"),
    "batching": ("batching", "static: no request joins until the whole batch has finished"),
    "chunked_prefill": ("chunked prefill", "split long prompts to fit into the token budget"),
    "admission": ("admission", "admit a request if all its tokens fit, or if its first chunk does"),
    "prefix_cache": ("prefix cache", "keep blocks for later requests, as SGLang or as vLLM does"),
    "preemption": (
        "preemption",
        "admit requests without reserving memory for their whole output",
    ),
}
TRAFFIC = {
    "requests": ("requests", "number of requests"),
    "rate": ("arrival rate", "average number of requests per second"),
    "prompt_tokens": ("prompt length", "average number of prompt tokens"),
    "output_tokens": ("output length", "average number of output tokens"),
    "shared": ("shared prefix", "prefix that all prompts share, in percent of the average prompt"),
    "seed": ("seed", "random seed of the traffic"),
}
RUNS_ON = {"model": ("runs on", "the simulated machine is fast; the model generates real text")}

_TITLES = ENGINE | TRAFFIC | RUNS_ON
NAMES = {name: label for name, (label, _) in _TITLES.items()}

_RANGES = {  # minimum, maximum, step
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
    "admission": [("whole sequence", "whole"), ("first chunk", "first_chunk")],
    "prefix_cache": [("radix tree", "radix"), ("hashed blocks", "hash"), ("off", "off")],
    "model": [("a simulated machine", False), ("the bundled model", True)],
}
_CELL = {"width": "auto", "margin": "0"}
_LABEL = {"description_width": "96px"}


def build(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return {setting: widget} for each setting that has a control, set to its current value."""
    shown = [name for name in _TITLES if name in settings]
    return {name: _control(name, *_TITLES[name], settings[name]) for name in shown}


def lay_out(controls: Mapping[str, Any]) -> Any:
    """Return a box with the controls in their groups."""
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
