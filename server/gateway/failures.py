"""What can fail on a request's way through the cluster: one model, and its table.

A request passes the hops of `engine.cluster.events.Hop`. Each hop can fail, and each failure has one
answer here: how the gateway notices it, within how long, what it does, and what the client sees. The
code that passes requests on (`proxy.py`, `roles.py`, `lmtp.py`, `follower.py`) does nothing else, and
logs each failure as a `hop_failed`.

Three rules explain most rows:

- A client that has no token yet gets one from another replica, as often as there are other replicas.
- A client that has tokens gets the next one from another replica, which computes the prompt and these
  tokens again, as an engine does after a preemption.
- A move of KV is never needed for an answer.

`docs/cluster.md` shows the table (`make tables`).

Source: Dynamo calls the second rule request migration (`lib/llm/src/migration.rs`). Envoy's outlier
detection ejects hosts in the same way, and never all of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from engine.cluster.events import Hop, Noticed, Remedy
from engine.core.config import ConfigError


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the gateway waits, in seconds.

    connect      for a connection to a replica
    beat         from one sign of life on a replica's feed to the next
    silent       without a sign of life before a replica is ejected
    gone         without a sign of life before a replica has left
    render       for a prompt's token ids
    queue        for a replica that accepts a request which another one has lost
    prefill      for a prompt on a prefill replica, beside eight times as long as it should take
    export       for the first bytes of a prompt's KV
    adopt        for the KV of a prompt to arrive and to be taken over, beside eight times as long as
                 it should take
    first_token  for a request's first token, counted from its arrival at the replica, or from the
                 replica's last step if that is later
    stream       for a stream's next token, counted in the same way, and for any bytes of it

    A replica that works through a long queue is not late, and neither is one that a teacher has paused:
    its event log tells the gateway so. The bytes of a stream are at least its keep-alive comments.
    """

    connect: float = 5.0
    beat: float = 0.5
    silent: float = 3.0
    gone: float = 10.0
    render: float = 5.0
    queue: float = 60.0
    prefill: float = 5.0
    export: float = 5.0
    adopt: float = 5.0
    first_token: float = 120.0
    stream: float = 120.0


def parse_deadlines(texts: Iterable[str]) -> Deadlines:
    """Return the deadlines that texts such as "prefill=2.5" change. Raises ConfigError."""
    names, changed = [field.name for field in fields(Deadlines)], dict[str, float]()
    for text in texts:
        name, _, seconds = text.partition("=")
        try:
            changed[name] = float(seconds)
        except ValueError:
            changed[name] = 0.0
        if name not in names or not changed[name] > 0:
            raise ConfigError(
                f"deadline must be NAME=SECONDS, where NAME is {', '.join(names)}, got {text!r}"
            )
    return Deadlines(**changed)


@dataclass(frozen=True, slots=True)
class Failure:
    """A row of the table. `within` names the field of `Deadlines`; "" is at once."""

    hop: Hop
    what: str
    noticed: Noticed
    within: str
    remedy: Remedy
    client: str
