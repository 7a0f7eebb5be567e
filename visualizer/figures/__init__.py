"""Plotly figures of whole runs, alone or compared. The board shows single steps.

    from visualizer import figures
    figures.overlap(log)                                   # CPU and device, at work or idle
    figures.overlap({"waits": a, "one step ahead": b})     # several runs by name, on one scale
    figures.hits({"random": a, "prefix_tree": b})          # hit rates of cluster runs
    figures.lanes(log, step=4)                  # one step on several devices
    figures.break_even(compute_ms, {"the link": move_ms}, most=62)   # (blocks) -> ms
    figures.capacity({"one": a, "two": b})      # sweeps of the arrival rate
    figures.roofline(points, flops_per_s=1e12, bytes_per_s=1e11)
    figures.users({"Llama 3.1 8B": kv_sizes(config).fit(80e9, 8192)})   # drawn to scale

Each function returns a plotly Figure. `theme` is "light", "dark" or None. None means a transparent
background and colours that are readable on both light and dark pages. Times come from the log's
clock, real or virtual.
"""

from engine.core.extras import needs_extra

with needs_extra("visualizer.figures"):
    from visualizer.figures.break_even import break_even
    from visualizer.figures.capacity import capacity
    from visualizer.figures.hits import hits
    from visualizer.figures.lanes import lanes
    from visualizer.figures.overlap import overlap
    from visualizer.figures.roofline import roofline
    from visualizer.figures.shape import shape
    from visualizer.figures.users import users

__all__ = ["break_even", "capacity", "hits", "lanes", "overlap", "roofline", "shape", "users"]
