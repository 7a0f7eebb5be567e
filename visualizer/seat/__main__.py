"""`python -m visualizer.seat LOG [QUESTION]`: answer questions about a saved log.

Without a question, they are lines on standard input. A server and a notebook's kernel run it in a
process of its own, which they can end at any time; their clients and cells do not notice.
"""

import json
import sys
from pathlib import Path

from visualizer.logs import read_any
from visualizer.seat.answers import Seats


def main() -> None:
    """Print the answers to each question, a line of JSON each."""
    path, *questions = sys.argv[1:]
    seats = Seats(read_any(Path(path)))
    for question in questions or sys.stdin:
        for line in seats.json_lines(json.loads(question)):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
