"""Clients get the model's own distribution, all of their text, and none after the end."""

from project.gates.gate import Gate

GATE = Gate(
    "clients",
    "exact distribution, whole text, nothing after the end",
    exact=("accept", "Outbox", "ToolState", "Ahead"),
)
