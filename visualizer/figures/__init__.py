"""Figures for distributions and comparisons, in plotly: what the board, which shows moments, does not.

    from visualizer import figures
    figures.ttft(log)                           # one run
    figures.ttft({"fcfs": a, "sjf": b})         # several, by name, on one scale
    figures.latency_vs_load({2: slow, 8: fast}) # requests per second -> the log of that run
    figures.roofline(dots, flops_per_s=1e12, bytes_per_s=1e11)  # what computing costs, what fetching

Each returns a plotly Figure. `theme` is "light", "dark" or None: a transparent ground, with colours
that can be read on a light and on a dark page. Times come from the log: real, or of a virtual clock.
"""

try:
    import plotly  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "figures are drawn with plotly, which is missing: pip install plotly"
    ) from error

from visualizer.figures.distributions import itl, ttft
from visualizer.figures.load import latency_vs_load
from visualizer.figures.over_time import queue, throughput
from visualizer.figures.roofline import roofline
from visualizer.figures.stacks import memory, tokens_per_step

__all__ = [
    "itl",
    "latency_vs_load",
    "memory",
    "queue",
    "roofline",
    "throughput",
    "tokens_per_step",
    "ttft",
]
