"""Every request finishes, however tight memory is."""

from project.gates.gate import Gate
from project.gates.tight import serve_all
from project.learner import Source
from project.parts import config_of
from project.workloads import WORKLOADS

OWN = ("pick_budget", "victim", "order")
WITH = ("admit", "BlockPool", "split", "choose_leaf")


def attempt(source: Source) -> None:
    """Serve 200 tight workloads with all parts together, and look at the settings."""
    for kind in WORKLOADS:
        config_of(source.load(), kind)
    serve_all(source, OWN + WITH, 200)


GATE = Gate("pressure", "200 tight workloads finish", free=OWN, attempt=attempt)
