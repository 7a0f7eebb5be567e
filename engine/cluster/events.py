"""The vocabulary of the cluster log: several replicas behind one gateway, in one log.

Notes before reading:

- `of` carries an event of a replica, unchanged. The other events record what the gateway did. So the
  log splits back into one `EventLog` per replica (`cluster_log.py`).
- Events are in the order in which the gateway learned of them. A replica's event is therefore a little
  late: a request may be routed between an event and its `of`.
- Measured values are under the last key `t`, as in `vocabulary.py`. Times are integer microseconds
  since the gateway started; the times inside an `of` are the replica's own. Cluster time is the
  replica's time plus the `offset` of its `replica_joined`.
- A request has a number here, from 1, and another one in its replica's log: `placed` joins the two.
  As in a replica's log, a request with k samples takes k numbers.
- A window of the log begins with `cluster_started`, the `replica_joined` of each replica that is
  present, and for each an `of` with a `keyframe` and, if it is ejected, the `replica_ejected`.
"""

from typing import TYPE_CHECKING, Any, Literal, Union

import msgspec

from engine.core.log.vocabulary import AnyEvent, snake_case

CLUSTER_SCHEMA_VERSION = 1

RoutingReason = Literal[
    "longest_prefix",  # it has the longest cached prefix, or one of them
    "prefix_on_its_way",  # a request on its way there is about to compute the prefix
    "lowest_cost",  # another replica has a longer prefix, but more work
    "least_work",  # no replica has a prefix, and its score is the lowest
    "least_loaded",  # it has the fewest requests
    "less_loaded_of_two",  # it has fewer requests than the other one that was drawn
    "least_cached",  # no prefix is long enough, and it has the most room for a new one
    "load_unbalanced",  # the loads differ so much that the prefix does not count
    "random",
    "next_in_turn",
    "pinned",  # the client's session belongs to this replica
]

Hop = Literal[
    "render",  # a replica reads the prompt's token ids
    "queue",  # no replica accepts the request at the moment
    "prefill",  # with roles: a prefill replica computes the prompt
    "export",  # with roles: the prefill replica reads the prompt's KV
    "adopt",  # with roles: the decode replica takes the KV over
    "first_token",  # a replica has the request, and the client has no token of it
    "stream",  # the client has tokens, and wants the others
]
"""The steps on a request's way through a cluster, each of which can fail."""

Noticed = Literal[
    "unreachable",  # it could not be connected to
    "closed",  # the connection broke
    "refused",  # it answered that it takes no requests: 503
    "error",  # it answered with another error, or broke off with one
    "silent",  # its feed has missed several beats
    "late",  # the hop's deadline passed
]
"""How the gateway noticed that a hop failed."""

Remedy = Literal[
    "waits",  # the request waits until a replica accepts it
    "elsewhere",  # another replica gets the request; its client has no token yet
    "continued",  # another replica goes on after the tokens that the client has
    "here",  # without the hop: the decode replica computes the prompt itself
    "ended",  # the client gets an error
]
"""What the gateway did then."""


class ClusterEvent(msgspec.Struct, tag_field="type", tag=snake_case, omit_defaults=True, gc=False):
    """Base of all events. `type` is the class name in snake_case."""


class ClusterStarted(ClusterEvent):
    """The first event of a cluster log. `options` are the router's settings."""

    schema: int
    router: str
    options: dict[str, Any]
    t: dict[str, Any] = {}  # unix_us


class ReplicaJoined(ClusterEvent):
    """A replica is ready, or its clock was set again. `role` is "" unless replicas have roles.

    run  names the run of its engine: another one numbers its requests and events anew; "" if unknown
    t    `at`; cluster time is the replica's time plus `offset`; `rtt` is the round trip of the ping
         that measured the offset, so the offset is wrong by at most half of it
    """

    replica: str
    url: str = ""
    role: str = ""
    run: str = ""
    t: dict[str, Any] = {}  # at, offset, rtt


class ReplicaLeft(ClusterEvent):
    """A replica is gone. `why` is for display."""

    replica: str
    why: str
    t: dict[str, Any] = {}  # at


class Of(ClusterEvent):
    """An event of a replica's log, unchanged; `seq` is its number there."""

    replica: str
    seq: int
    event: AnyEvent


class Routed(ClusterEvent):
    """A decision of the router: this request goes to `replica`.

    attempt  1, or more if its replica failed before: one more than there are failed replicas
    prompt   the number of prompt tokens
    hits     by replica: how many prompt tokens are predicted to be cached there
    loads    by replica: requests routed there that had not ended
    scores   by replica: what the policy compared, lower is better; empty if it compared nothing
    terms    by replica: the summands of its score, by name, weights included; empty if the score is
             one number
    ties     by replica, for those with the best score: what the policy compared next, by name and in
             this order; larger is better, and a random number is called `draw`. Empty if only one had
             the best score. If all of it is equal, the first one is chosen
    output   the number of tokens that its client has already: the replica continues after them
    t        `at`, and how long the decision took, `us`; not in a simulation
    """

    request: int
    label: str
    replica: str
    attempt: int
    reason: RoutingReason
    prompt: int
    hits: dict[str, int]
    loads: dict[str, int]
    scores: dict[str, float]
    terms: dict[str, dict[str, float]] = {}
    ties: dict[str, dict[str, float]] = {}
    output: int = 0
    t: dict[str, Any] = {}  # at, us


class Placed(ClusterEvent):
    """A request arrived at its replica; in the replica's log its number is `its_request`.

    An LMTP connection is one request of the cluster; each of its streams is placed.
    """

    request: int
    replica: str
    its_request: int
    t: dict[str, Any] = {}  # at


class HopFailed(ClusterEvent):
    """A step on a request's way failed at `replica`, and what the gateway did then.

    replica  "" if no replica was there (`queue`)
    why      for display
    t        `at`, and `us`: how long the gateway had waited for this hop
    """

    request: int
    replica: str
    hop: Hop
    noticed: Noticed
    remedy: Remedy
    why: str
    t: dict[str, Any] = {}  # at, us


class ReplicaEjected(ClusterEvent):
    """The gateway sends no new requests to a replica that is present but does not answer. `why` is for
    display."""

    replica: str
    why: str
    t: dict[str, Any] = {}  # at


class ReplicaReturned(ClusterEvent):
    """An ejected replica answers again. `half_open`: it gets one request, to see whether it works."""

    replica: str
    half_open: bool = False
    t: dict[str, Any] = {}  # at


class RequestLost(ClusterEvent):
    """The request ended with an error, because its replica failed and no other one could go on."""

    request: int
    replica: str
    t: dict[str, Any] = {}  # at


class Controlled(ClusterEvent):
    """A client controlled one replica, or all of them (None). `what` is the control's name."""

    what: str
    replica: str | None = None
    t: dict[str, Any] = {}  # at


class Moved(ClusterEvent):
    """The KV blocks of a request's first `tokens` tokens were copied from `source` to `target`.

    t  when the copy began, `at`, and how long it took, `us`
    """

    request: int
    source: str
    target: str
    tokens: int
    blocks: int
    bytes: int
    t: dict[str, Any] = {}  # at, us


if TYPE_CHECKING:
    AnyClusterEvent = ClusterEvent
else:
    AnyClusterEvent = Union[tuple(ClusterEvent.__subclasses__())]  # noqa: UP007
