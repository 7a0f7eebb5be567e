"""A guided tour of a log: scenes with one picture and a few sentences each. See `tour.py`."""

from visualizer.reading.tour.cluster import tour_of_cluster
from visualizer.reading.tour.scene import Scene, Tour
from visualizer.reading.tour.tour import tour_of

__all__ = ["Scene", "Tour", "tour_of", "tour_of_cluster"]
