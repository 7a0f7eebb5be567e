"""What can fail on a request's way through the cluster: one model, and its table.

A request passes the hops of `engine.cluster.events.Hop`. Each hop can fail, and each failure has one
answer here: how the gateway notices it, within how long, what it does, and what the client sees. The
code that passes requests on (`attempts.py`, `proxy.py`, `roles.py`, `lmtp.py`, `follower.py`) does
nothing else, and logs each failure as a `hop_failed`.

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
    stream       for a stream's next token, counted in the same way

    A replica that works through a long queue is not late, and neither is one that a teacher has paused:
    its event log tells the gateway so. But the bytes of a stream may not be late either, and these are
    at least its keep-alive comments.
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
    """A row of the table.

    hop      the step that fails; its request is on the way, unless `what` says otherwise
    what     what has happened
    within   the field of `Deadlines` after which it is noticed; "" is at once
    client   what the client sees
    """

    hop: Hop
    what: str
    noticed: Noticed
    within: str
    remedy: Remedy
    client: str


_NOTHING, _PAUSE = "nothing", "a pause"
_LATER = "nothing but the time that it takes"
_LATE = "504, `replica_late`"
_LATE_EVENT = "`replica_late`"
_COMMENTS = "keep-alive comments"
_ITEM = "an error item, `retry` is true"

FAILURES = (
    Failure(
        "render", "a replica does not answer or refuses", "late", "render", "elsewhere", _NOTHING
    ),
    Failure("render", "the only replica does not answer", "late", "render", "here", _NOTHING),
    Failure("queue", "a replica is stuck, or shuts down", "refused", "", "elsewhere", _NOTHING),
    Failure("queue", "the only replica shuts down", "refused", "", "ended", "503, `Retry-After`"),
    Failure("queue", "a replica cannot be reached", "unreachable", "connect", "elsewhere", _LATER),
    Failure("queue", "no replica has come back", "late", "queue", "ended", "`replica_lost`"),
    Failure("prefill", "the prefill replica fails or refuses", "closed", "", "here", _LATER),
    Failure("prefill", "it does not answer", "late", "prefill", "here", _LATER),
    Failure("export", "it does not send the prompt's KV", "late", "export", "here", _LATER),
    Failure("adopt", "the decode replica does not take it", "late", "adopt", "here", _LATER),
    Failure("first_token", "a replica dies", "closed", "", "elsewhere", _LATER),
    Failure("first_token", "a replica falls silent", "silent", "silent", "elsewhere", _LATER),
    Failure("first_token", "an engine's process dies", "error", "", "elsewhere", _LATER),
    Failure("first_token", "a step fails", "error", "", "elsewhere", _LATER),
    Failure("first_token", "the only replica dies", "closed", "", "waits", _COMMENTS),
    Failure("first_token", "an engine does nothing", "late", "first_token", "elsewhere", _LATER),
    Failure("first_token", "the only engine does nothing", "late", "first_token", "ended", _LATE),
    Failure("first_token", "five engines fail in a row", "error", "", "ended", "the last error"),
    Failure("stream", "a replica dies", "closed", "", "continued", _PAUSE),
    Failure("stream", "a replica falls silent", "silent", "silent", "continued", _PAUSE),
    Failure("stream", "an engine's process dies", "error", "", "continued", _PAUSE),
    Failure("stream", "a step fails", "error", "", "continued", _PAUSE),
    Failure("stream", "the gateway has no cluster key", "error", "", "ended", "`replica_lost`"),
    Failure("stream", "the only replica dies", "closed", "", "waits", _COMMENTS),
    Failure("stream", "an engine does nothing", "late", "stream", "continued", _PAUSE),
    Failure("stream", "the only engine does nothing", "late", "stream", "ended", _LATE_EVENT),
    Failure("stream", "one that holds LMTP buffers dies", "closed", "", "ended", _ITEM),
)
