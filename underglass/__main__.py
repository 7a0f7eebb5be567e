"""`python -m underglass` is the console command, for a shell that does not find it."""

import sys
from pathlib import Path

# `-m` puts the working directory first. Unless it is the clone, it holds nothing of ours, but perhaps a
# learner's server.py.
if not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).parents[1]:
    del sys.path[0]

from underglass.commands import main

main()
