"""What a learner reads from a log, or computes of a step, is true."""

from project.gates.gate import Gate

GATE = Gate(
    "reports",
    "logs and costs are read correctly",
    exact=("first_token_steps", "count_work", "report"),
)
