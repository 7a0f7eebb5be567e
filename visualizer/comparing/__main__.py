"""`python -m visualizer.comparing A B NAME_A NAME_B`: compare two saved logs, for the live page.

Prints JSON: the packed logs in base64, and the facts that `compare.ts` draws.
"""

import base64
import json
import sys
from pathlib import Path

from visualizer.comparing.compared_runs import ComparedRuns
from visualizer.packed import pack


def main() -> None:
    """Compare the logs that the command line names."""
    a, b, name_a, name_b = sys.argv[1:]
    compared = ComparedRuns(Path(a), Path(b), (name_a, name_b))
    packed = [base64.b64encode(pack(log)).decode() for log in compared.logs]
    json.dump({"logs": packed, "facts": compared.page_facts()}, sys.stdout)


if __name__ == "__main__":
    main()
