"""The playground's controls: one widget per setting, in two groups that wrap to fit the page.

They are standard ipywidgets (sliders with a text field, dropdowns, checkboxes), so they can be used
from the keyboard. A tooltip explains each setting.
"""

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from visualizer.playing.settings import CHOICES, ENGINE, RANGES, RUNS_ON, TITLES, TRAFFIC

_CELL = {"width": "auto", "margin": "0"}
_LABEL = {"description_width": "96px"}


def build(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return {setting: widget} for each setting that has a control, set to its current value."""
    shown = [name for name in TITLES if name in settings]
    return {name: _control(name, *TITLES[name], settings[name]) for name in shown}


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
    if name in CHOICES:
        options = CHOICES[name]
        if value not in [choice for _, choice in options]:
            options = [*options, (str(value), value)]
        return widgets.Dropdown(options=options, value=value, **common)
    if isinstance(value, bool):
        return widgets.Checkbox(value=value, **(common | {"style": {"description_width": "0"}}))
    if name == "seed":
        return widgets.BoundedIntText(value=value, min=0, max=9999, **common)
    least, most, step = RANGES[name]
    if (value - least) % step:
        step = 1
    return widgets.IntSlider(
        value=value, min=min(least, value), max=max(most, value), step=step, **common
    )
