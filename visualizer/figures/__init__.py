"""Plotly figures of whole runs: distributions and comparisons. The board shows single steps.

    from visualizer import figures
    figures.ttft(log)                           # one run
    figures.ttft({"fcfs": a, "sjf": b})         # several runs by name, on one scale
    figures.roofline(points, flops_per_s=1e12, bytes_per_s=1e11)

Each function returns a plotly Figure. `theme` is "light", "dark" or None: a transparent background
with colours that can be read on a light and on a dark page. Times come from the log's clock, real or
virtual.
"""

try:
    import plotly  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "figures are drawn with plotly, which is missing: pip install plotly"
    ) from error

from visualizer.figures.distributions import itl, ttft
from visualizer.figures.memory import memory
from visualizer.figures.roofline import roofline
from visualizer.figures.throughput import throughput

__all__ = ["itl", "memory", "roofline", "throughput", "ttft"]
