"""Clients get the model's own distribution, all of their text in its shape, and none after the end."""

from project.gates.gate import Gate

GATE = Gate(
    "clients",
    "exact distribution, whole text in its shape, nothing after the end",
    exact=("accept", "Outbox", "ToolState", "mask", "Ahead"),
)
