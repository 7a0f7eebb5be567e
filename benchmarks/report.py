"""What a figure leaves behind: its numbers with the machine they were measured on, and a plot.

`build/benchmarks/NAME.json` is for comparing runs, `NAME.svg` for looking at. Both stay out of git:
such numbers belong to one machine.
"""

import json
import os
import platform
import re
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent.parent / "build" / "benchmarks"

# The panels' request hues: told apart by normal, protan, deutan and tritan eyes.
HUES = ["#293ec1", "#cf7f22", "#006942", "#8b1868", "#0ea493", "#836900", "#de3460", "#9b79fd"]
TEXT, MUTED, LINE = "#16181d", "#5a606b", "#dde0e6"

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


def panel(
    title: str, x: str, y: str, width: float = 7.2, height: float = 3.6
) -> tuple[Figure, Axes]:
    """An empty plot in the project's look; width and height in inches. Numbers start at 0."""
    plot = Figure(figsize=(width, height))
    axes = plot.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(axis="y")
    return plot, axes


def machine() -> dict[str, object]:
    """What a number depends on besides the code."""
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
