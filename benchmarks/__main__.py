"""All figures, one after the other; name one or more to run only those."""

import sys

from benchmarks import batching, recording

FIGURES = {"batching": batching.main, "recording": recording.main}


def main() -> None:
    """Run the figures named on the command line, or all."""
    names = sys.argv[1:] or list(FIGURES)
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        sys.exit(f"unknown figure: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    for name in names:
        print(f"\n{name}")
        FIGURES[name]()


if __name__ == "__main__":
    main()
