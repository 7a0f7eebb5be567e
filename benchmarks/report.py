"""Save a figure: its numbers with the machine they were measured on, and a plot.

`build/benchmarks/NAME.json` is for comparing runs, `NAME.svg` for looking at. Both are ignored by git:
the numbers belong to one machine.
"""

import json
import logging
import os
import platform
import re
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent.parent / "build" / "benchmarks"

# The panels' request hues, distinguishable to normal, protan, deutan and tritan eyes.
HUES = ["#293ec1", "#cf7f22", "#006942", "#8b1868", "#0ea493", "#836900", "#de3460", "#9b79fd"]
TEXT, MUTED, LINE = "#16181d", "#5a606b", "#dde0e6"
OTHERS = "#8d94a1"  # what ours is compared to; 3:1 on white

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # the first font found is fine
matplotlib.rcParams.update(
    {
        "font.family": ["Arial", "Liberation Sans", "DejaVu Sans"],
        "font.size": 11,
        "text.color": TEXT,
        "axes.edgecolor": LINE,
        "axes.labelcolor": MUTED,
        "axes.titlelocation": "left",
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.prop_cycle": matplotlib.cycler(color=HUES),
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "grid.color": LINE,
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "lines.linewidth": 2,
        "figure.facecolor": "#ffffff",
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "underglass",
    }
)


def panels(
    titles: list[str], x: str, y: str = "", width: float = 8.4, height: float = 2.8
) -> tuple[Figure, list[Axes]]:
    """Empty plots side by side in the project's look; width and height of all, in inches."""
    plot = Figure(figsize=(width, height))
    row = plot.subplots(1, len(titles), squeeze=False)[0]
    for axes, title in zip(row, titles, strict=True):
        axes.set(title=title, xlabel=x)
        axes.grid(axis="y")
    row[0].set_ylabel(y)
    return plot, list(row)


def bars(axes: Axes, values: dict[str, float], digits: int = 0, ours: int = 1) -> None:
    """Draw horizontal bars from 0, the upper `ours` in colour, with names at the first column only."""
    names = list(values)
    colors = [HUES[0]] * ours + [OTHERS] * (len(names) - ours)
    drawn = axes.barh(names, list(values.values()), height=0.62, color=colors)
    ground = {
        "facecolor": "#ffffff",
        "edgecolor": "none",
        "pad": 1,
    }  # over a line that may be there
    axes.bar_label(drawn, fmt=f"{{:,.{digits}f}}", padding=5, fontweight="bold", bbox=ground)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(MUTED)
    if axes.get_subplotspec().colspan.start > 0:
        axes.set_yticks([])
    else:
        axes.tick_params(axis="y", labelcolor=TEXT)


def machine() -> dict[str, object]:
    """Describe the machine and the versions that a number depends on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def save(name: str, figures: dict[str, object], plot: Figure | None = None) -> None:
    """Write `figures` (anything JSON holds) and the plot, and print where they are."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    written = [FOLDER / f"{name}.json"]
    record = {"name": name, "machine": machine(), "figures": figures}
    written[0].write_text(json.dumps(record, indent=2) + "\n")
    if plot is not None:
        written.append(FOLDER / f"{name}.svg")
        plot.savefig(written[-1], metadata={"Date": None})
    print("saved:", ", ".join(str(path.relative_to(FOLDER.parent.parent)) for path in written))


def _cpu() -> str:
    info = Path("/proc/cpuinfo")  # on Linux, where platform.processor() is empty
    found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.M) if info.is_file() else None
    return found[1] if found else platform.processor() or platform.machine()
