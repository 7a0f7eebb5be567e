"""The gates: what has to hold before a score counts. To add a gate, write a file and name it here."""

from project.gates import clients, machines, places, prefixes, pressure, reports, tokens
from project.gates.gate import Gate

GATES: tuple[Gate, ...] = (
    tokens.GATE,
    places.GATE,
    prefixes.GATE,
    pressure.GATE,
    clients.GATE,
    machines.GATE,
    reports.GATE,
)
