"""The table of failures in docs/cluster.md, from `server/gateway/failures.py`."""

from server.gateway.failures import FAILURES, Deadlines, Failure

_HOPS = {"first_token": "first token"}
_NOTICED = {
    "unreachable": "no connection",
    "closed": "its connection closes",
    "refused": "it says so",
    "error": "it says so",
    "silent": "its feed is silent",
    "late": "the deadline passes",
}
_REMEDIES = {
    "waits": "waits for a replica",
    "elsewhere": "another replica gets the request",
    "continued": "another replica continues it",
    "here": "goes on without it",
    "ended": "ends the request",
}


def render() -> str:
    """Return the table."""
    rows = [
        "| step | what fails | noticed | within | the gateway | the client sees |",
        "|---" * 6 + "|",
    ]
    return "\n".join([*rows, *map(_row, FAILURES), ""])


def _row(failure: Failure) -> str:
    within = "at once"
    if failure.within:
        within = f"{getattr(Deadlines(), failure.within):g} s, `{failure.within}`"
    hop = _HOPS.get(failure.hop, failure.hop)
    cells = hop, failure.what, _NOTICED[failure.noticed], within, _REMEDIES[failure.remedy]
    return f"| {' | '.join((*cells, failure.client))} |"
