"""`make test-core-314`: download the wheels once, and run the tests of the core."""

import sys

from tests.core_314.pyodide import run

# Tests of the core. Most of what they skip are tests of widgets, figures, tables and commands.
FOLDERS = ["tests/engine", "tests/parity", "tests/project", "tests/sources", "tests/visualizer"]


def main() -> int:
    """Run the tests that are named, or else all tests of the core."""
    return run(sys.argv[1:] or ["-q", *FOLDERS])


if __name__ == "__main__":
    sys.exit(main())
