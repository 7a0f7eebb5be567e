"""admit and BlockPool leave no block behind."""

from project.gates.gate import Gate
from project.gates.tight import serve_all
from project.learner import Source

EXACT, FREE = ("BlockPool",), ("admit",)


def attempt(source: Source) -> None:
    """Serve 50 tight workloads with these two parts."""
    serve_all(source, EXACT + FREE, 50)


GATE = Gate("places", "no block leaks, 50 tight workloads", EXACT, FREE, attempt)
