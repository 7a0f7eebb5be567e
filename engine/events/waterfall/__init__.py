"""Where each request's time went: see `waterfall.py`."""

from engine.events.waterfall.parts import Part
from engine.events.waterfall.spans import Span
from engine.events.waterfall.waterfall import RequestTime, Waterfall

__all__ = ["Part", "RequestTime", "Span", "Waterfall"]
