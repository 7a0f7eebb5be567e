"""The faults of a cluster's log, for `simulate_cluster`: when a replica was gone, and when it was back.

A replica is gone from the first sign of it, a failed request, an ejection or its leave, until it joins
again or gets requests as before. If an ejection is the first sign, and clients had waited for it in
vain, then it had fallen silent before: it stopped after its last step, and the router did not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from engine.core.log import vocabulary as v
from engine.simulation.cost_runner import US_PER_MS


@dataclass(frozen=True, slots=True)
class Fault:
    """A time without a replica.

    at_ms       when it stops in the middle of its step
    noticed_ms  when the router learns of it, and sends its requests to other replicas
    back_ms     when it joins again; None: never
    is_new      whether it then is another engine, whose cache is empty
    """

    replica: str
    at_ms: float
    noticed_ms: float
    back_ms: float | None = None
    is_new: bool = True
    why: str = "it died"


def recorded_faults(log: ClusterLog, replicas: Mapping[str, range]) -> list[Fault]:
    """Return the faults of a log, for simulated replicas.

    replicas  the numbers of the simulated replicas by role; a role that is not in it may have any. A
              replica that joins when another one has left takes the place of that one. One without a
              place is left out, with its faults
    """
    reader = _Reader(replicas)
    for event in log:
        reader.take(event)
    return [*reader.faults, *reader.gone.values()]


class _Reader:
    """Reads a log from its beginning.

    places  each replica's number
    gone    by number, the faults that have not ended
    """

    def __init__(self, replicas: Mapping[str, range]) -> None:
        self.faults: list[Fault] = []
        self.gone: dict[int, Fault] = {}
        self.places: dict[str, int] = {}
        self._replicas = replicas
        self._used = set[int]()
        self._joined: dict[str, c.ReplicaJoined] = {}
        self._ended: dict[str, float] = {}  # by replica, the end of its last step, in us
        self._failed: dict[str, float] = {}  # the first failure since its last event
        self._is_serving = False

    def take(self, event: c.AnyClusterEvent) -> None:
        """Read the next event."""
        match event:
            case c.Routed():
                self._is_serving = True
            case c.Of(replica=replica, event=v.StepFinished(t={"end": end})):
                self._ended[replica] = end + self._joined[replica].t.get("offset", 0)
                self._failed.pop(replica, None)
            case c.HopFailed(replica=replica) if replica in self.places:
                self._failed.setdefault(replica, event.t["at"])
                self._note_silence(event)
            case c.ReplicaEjected() | c.ReplicaLeft() if event.replica in self.places:
                self._leave(event)
            case c.ReplicaReturned(half_open=False):
                self._back(self.places.get(event.replica), event.t["at"], is_new=False)
            case c.ReplicaJoined():
                self._join(event)

    def _leave(self, event: c.ReplicaEjected | c.ReplicaLeft) -> None:
        number, at = self.places[event.replica], event.t["at"]
        at = min(at, self._failed.pop(event.replica, at)) / US_PER_MS
        self.gone.setdefault(number, Fault(str(number), at, at, why=event.why))
        if isinstance(event, c.ReplicaLeft):
            self._used.discard(number)

    def _note_silence(self, event: c.HopFailed) -> None:
        """Let an ejected replica stop after its last step if a client has waited for it in vain."""
        number = self.places[event.replica]
        ended = self._ended.get(event.replica, 0) / US_PER_MS
        if event.noticed == "silent" and (fault := self.gone.get(number)) is not None:
            self.gone[number] = replace(fault, at_ms=min(fault.noticed_ms, ended))

    def _join(self, event: c.ReplicaJoined) -> None:
        before, at = self._joined.get(event.replica), event.t["at"]
        self._joined[event.replica] = event
        number = self.places.get(event.replica)
        if number in self._used:
            return  # its clock was measured again
        if number is None:
            number = self._place(event)
        if number is None:
            return
        is_first = number not in self.places.values()
        self.places[event.replica] = number
        self._used.add(number)
        if is_first and self._is_serving:
            self.gone[number] = Fault(str(number), 0, 0, why="it has not joined yet")
        is_new = before is None or not event.run or before.run != event.run
        self._back(number, at, is_new=is_new)

    def _place(self, event: c.ReplicaJoined) -> int | None:
        every = [one for numbers in self._replicas.values() for one in numbers]
        free = [one for one in self._replicas.get(event.role, every) if one not in self._used]
        own = [one for one in free if str(one) == event.replica]
        return next(iter(own or free), None)

    def _back(self, number: int | None, at: int, *, is_new: bool) -> None:
        if number is not None and (fault := self.gone.pop(number, None)) is not None:
            self.faults.append(replace(fault, back_ms=at / US_PER_MS, is_new=is_new))
