"""With a shared prefix cache, every request gets the text that it gets alone."""

from project.gates.gate import Gate
from project.gates.tight import serve_all
from project.learner import Source

EXACT, FREE = ("split",), ("choose_leaf",)


def attempt(source: Source) -> None:
    """Serve 50 tight workloads with these two parts."""
    serve_all(source, EXACT + FREE, 50)


GATE = Gate(
    "prefixes",
    "text is the same with and without a cache, 50 tight workloads",
    EXACT,
    FREE,
    attempt,
)
