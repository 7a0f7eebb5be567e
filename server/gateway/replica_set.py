"""The replicas that belong to a gateway.

A `ReplicaSet` says which servers belong to the gateway, and where they are. It need not know whether
one can be reached: the gateway connects to each, routes requests to those that answer, and tries again
while a member does not (`follower.py`).

    UrlSet   the servers that `--replica URL` names; they never change

Source: vLLM's and SGLang's routers make the same distinction: a list of worker URLs, or discovery.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from pydantic import BaseModel, Field


@dataclass(frozen=True, slots=True)
class Member:
    """A server that belongs to the gateway.

    id     names it in the log and in the header x-underglass-replica; never used twice
    url    its address, without a slash at the end
    role   "", or with prefill and decode on separate replicas "prefill" or "decode"
    """

    id: str
    url: str
    role: str = ""


class RayHealth(BaseModel):
    """Ray, which starts replicas. Those that run serve on without it."""

    status: Literal["ok", "lost"]
    reason: str = Field(description="Why it is lost, and what is done about it; or empty.")
    since: datetime


class ReplicaSet(Protocol):
    """Tells the gateway about its members. All calls happen on the event loop.

    desired  how many members there should be
    since    since when there should be so many
    ray      the state of Ray, if it starts the members
    """

    desired: int
    since: datetime
    ray: RayHealth | None

    async def start(
        self, add: Callable[[Member], None], remove: Callable[[str, str], None]
    ) -> None:
        """Begin to call `add(member)` for each member, and `remove(id, why)` when it is no longer one.

        No request is routed to a removed member while another one is ready. Its streams continue until
        they end or break, so it may finish them before it exits. An exception ends the gateway.
        """

    async def stop(self) -> None:
        """Release the members. Called after the drain; no request is running any more."""


class UrlSet:
    """Servers at fixed addresses. Their ids are "0", "1", ..., in the order of the list."""

    ray: RayHealth | None = None

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self.desired, self.since = len(urls), datetime.now(UTC)

    async def start(
        self, add: Callable[[Member], None], remove: Callable[[str, str], None]
    ) -> None:
        """See `ReplicaSet`."""
        del remove  # a server that cannot be reached still belongs to the gateway
        for number, url in enumerate(self._urls):
            add(Member(str(number), url))

    async def stop(self) -> None:
        """See `ReplicaSet`. The servers keep running: the gateway has not started them."""
