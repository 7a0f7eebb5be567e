"""Several machines share the work: a dead one gets none of it, and KV moves only if that is faster."""

from project.gates.gate import Gate

GATE = Gate(
    "machines",
    "a dead replica gets no request, a full one no more; KV moves only if that is faster",
    exact=("route", "fetch"),
)
