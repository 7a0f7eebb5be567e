"""`python -m visualizer.seat LOG QUESTION`: answer a question about a saved log, for the live page.

A server runs it in a process of its own, so that its clients do not notice.
"""

import json
import sys
from pathlib import Path

from visualizer.seat.answers import json_lines
from visualizer.seat.seat import Seat


def main() -> None:
    """Print the answers to the question on the command line, a line of JSON each."""
    path, question = sys.argv[1:]
    for line in json_lines(Seat(Path(path)), json.loads(question)):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
