"""Run `underglass open` as `python -m visualizer`."""

import sys

from underglass.commands import app

if __name__ == "__main__":
    app(["open", *sys.argv[1:]], prog_name="underglass")
