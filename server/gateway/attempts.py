"""The attempts of one request: what follows when a replica fails it, as `failures.py` says."""

import asyncio
from collections.abc import Awaitable, Callable

from engine.cluster.events import Hop, Remedy
from server.gateway.follower import Follower
from server.gateway.gateway import Gateway
from server.gateway.upstream import LostError, RefusedError
from server.http.errors import ApiError, unavailable

# A request that was being computed when so many replicas in a row failed, and got no token from one of
# them, is not tried again: it may be the request that ends them.
MOST_FAILURES = 5
# A replica that failed a request gets it again only after its engine has been started anew, or, if no
# other replica can take the request, after this time.
_AGAIN_SECONDS = 1.0


class Attempts:
    """Of request `number` of the cluster's log.

    accepted  whether a replica has accepted the request
    """

    def __init__(self, gateway: Gateway, number: int) -> None:
        self._gateway = gateway
        self.number = number
        self.accepted = False
        self._failed: dict[str, str] = {}  # replica -> its run in which it failed this request
        self._vain = 0  # replicas that have failed while they computed it, since the last token
        self._lost_at: float | None = None  # when the first of them did

    def token(self) -> None:
        """Note that a replica has generated a token."""
        self._vain, self._lost_at = 0, None

    def failed_here(self) -> list[str]:
        """Return the replicas that have failed this request and have not been started again since."""
        followers = self._gateway.followers
        return [
            id_
            for id_, run in self._failed.items()
            if id_ in followers and followers[id_].run == run
        ]

    @property
    def may_go_elsewhere(self) -> bool:
        """Whether a replica is ready that has not failed the request."""
        return not set(self._gateway.ready) <= set(self.failed_here())

    def failed(
        self,
        follower: Follower,
        run: str,
        error: LostError,
        began: int,
        *,
        has_token: bool,
        is_computed: bool,
    ) -> None:
        """Log that a replica has failed the request in its `run`. Raises ApiError if this ends it.

        has_token    whether the client has a token
        is_computed  whether the request may have been computed when the replica failed
        """
        gateway, name = self._gateway, follower.member.id
        self._failed[name] = run
        hop: Hop = "stream" if has_token else "first_token"
        if error.noticed in ("refused", "unreachable"):
            hop = "queue"
        else:
            self.accepted = True
            self._vain += error.code == "forward_pass_failed" or is_computed
        self._lost_at = self._lost_at or asyncio.get_running_loop().time()
        remedy: Remedy = "continued" if has_token else "elsewhere"
        if not self.may_go_elsewhere:
            remedy = "waits" if self.accepted and error.noticed != "late" else "ended"
        if self._vain >= MOST_FAILURES or error.is_final:
            remedy = "ended"
        gateway.hop_failed(self.number, name, hop, error, remedy=remedy, began=began)
        gateway.dispatcher.lost(self.number, gateway.now(), again=remedy != "ended")
        if remedy == "ended":
            raise _ending(name, error)

    async def wait(
        self,
        follower: Follower,
        error: LostError,
        keep_alive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Wait until a replica can take the request. Raises ApiError after `Deadlines.queue`.

        keep_alive  called once a second
        """
        gateway, loop = self._gateway, asyncio.get_running_loop()
        began, paused = gateway.now(), loop.time()
        while not self.may_go_elsewhere:
            left = (self._lost_at or paused) + gateway.deadlines.queue - loop.time()
            if left <= 0:
                late = LostError("no replica accepted the request again", "late")
                gateway.hop_failed(self.number, "", "queue", late, remedy="ended", began=began)
                gateway.dispatcher.lost(self.number, gateway.now(), again=False)
                raise _ending(follower.member.id, error)
            await gateway.changes.changed(min(left, _AGAIN_SECONDS))
            if loop.time() - paused >= _AGAIN_SECONDS:
                paused = loop.time()
                self._failed.clear()
                if keep_alive is not None:
                    await keep_alive()


def _ending(replica: str, error: LostError) -> ApiError:
    """Return what the client of a request gets that no replica can serve."""
    if isinstance(error, RefusedError) and not error.is_final:
        return error.answer
    message = f"replica {replica} was lost: {error}; send the request again"
    if error.code == "forward_pass_failed":
        return ApiError(500, str(error), code=error.code, type="server_error")
    if error.noticed == "late":
        return ApiError(504, message, code="replica_late", type="server_error")
    return unavailable(message, "replica_lost")
