"""The playground's controls: one widget per setting, in two groups that wrap to fit the page.

They are standard ipywidgets (sliders with a text field, dropdowns, checkboxes), so they can be used
from the keyboard. A tooltip explains each setting.
"""

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from visualizer.playing.settings import GROUPS, Control

_CELL = {"width": "auto", "margin": "0"}
_LABEL = {"description_width": "96px"}


def build(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return {setting: widget} for each setting that has a control, set to its current value."""
    shown = [one for group in GROUPS.values() for one in group if one.name in settings]
    return {one.name: _control(one, settings[one.name]) for one in shown}


def lay_out(controls: Mapping[str, Any]) -> Any:
    """Return a box with the controls in their groups."""
    boxes = []
    for title, group in GROUPS.items():
        heading = widgets.HTML(f"<h4>{title}</h4>", layout={"margin": "0"})
        heading.add_class("underglass-heading")
        grid = widgets.GridBox(
            [controls[one.name] for one in group if one.name in controls],
            layout={
                "grid_template_columns": "repeat(auto-fill, minmax(270px, 1fr))",
                "grid_gap": "2px 28px",
                "width": "100%",
            },
        )
        boxes += [heading, grid]
    return widgets.VBox(boxes)


def _control(control: Control, value: Any) -> Any:
    common = {
        "description": control.label,
        "tooltip": control.explanation,
        "layout": _CELL,
        "style": _LABEL,
    }
    if control.choices:
        return widgets.Dropdown(options=control.choices, value=value, **common)
    if isinstance(value, bool):
        return widgets.Checkbox(value=value, **(common | {"style": {"description_width": "0"}}))
    if control.limits is None:
        return widgets.BoundedIntText(value=value, min=0, max=9999, **common)
    least, most, step = control.limits
    if (value - least) % step:
        step = 1
    return widgets.IntSlider(
        value=value, min=min(least, value), max=max(most, value), step=step, **common
    )
