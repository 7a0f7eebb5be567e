"""Where each request's time went: see `waterfall.py`."""

from visualizer.reading.waterfall.parts import Part
from visualizer.reading.waterfall.spans import Span
from visualizer.reading.waterfall.waterfall import RequestTime, Waterfall

__all__ = ["Part", "RequestTime", "Span", "Waterfall"]
