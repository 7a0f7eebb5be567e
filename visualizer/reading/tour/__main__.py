"""`python -m visualizer.reading.tour FILE`: the tour of a saved log as JSON, for the live page."""

import sys
from pathlib import Path

from visualizer.reading.reading import read
from visualizer.sources import read_source

if __name__ == "__main__":
    sys.stdout.buffer.write(read(read_source(Path(sys.argv[1]))).tour.to_json())
