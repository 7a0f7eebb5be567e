"""The names of a log's requests, and a request by its id or its label."""

from collections.abc import Mapping
from difflib import get_close_matches

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.events import Routed
from engine.core.log import vocabulary as v
from engine.core.log.log import EventLog
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.known import known_of
from visualizer.indexed.names import IndexedNames, unique_names
from visualizer.logs import Select
from visualizer.reading.why.log_index import LogIndex, WhyError, requests_words

_MOST = 5
_COMPARED = 20_000  # names: comparing more of them takes long


def request_names(log: EventLog | ClusterLog) -> Mapping[int, str]:
    """Return each request's label, with its id if other requests have the same label; "r7" without one.

    Samples have the label of the request that they fork off from. The requests of a cluster have their
    numbers there.
    """
    if isinstance(log, ClusterLog):
        routed = dict[int, str]()
        for event in log.gateway():
            if isinstance(event, Routed):
                routed.setdefault(event.request, event.label)
        return unique_names(routed)
    if isinstance(log, IndexedLog):
        return unique_names(known_of(log).labels)
    index = LogIndex.of(log.each(v.Keyframe, v.RequestArrived, v.Forked), len(log))
    return unique_names(index.labels)


def selected_request(log: EventLog | ClusterLog, select: Select) -> int | None:
    """Return the id of the request to select, of which `select` may be the label; None for none.

    Raises ValueError for a request that is not in the log.
    """
    if select is None:
        return None
    try:
        return request_named(request_names(log), select)
    except WhyError as error:
        raise ValueError(f"select must be auto, None or a request of the log: {error}") from error


def request_named(names: Mapping[int, str], key: int | str) -> int:
    """Return the id of a request, given its id, its name, "r" and its id, or a part of its name.

    vLLM puts a client's id in the middle of its own ("cmpl-ID-0-1a2b3c4d"), so a part is enough if no
    other label has it. A label that several requests have means the first one. Raises WhyError, with
    similar names, if there is none.
    """
    if key in names:
        return int(key)
    if isinstance(key, str):  # an argument's bytes that are not UTF-8 are in no label
        key = key.encode("utf-8", "backslashreplace").decode()
    if isinstance(names, IndexedNames) and (found := _named(names.near(str(key)), key)) is not None:
        return found
    if (found := _named(names, key)) is not None:
        return found
    near = [name for name in names.values() if key and str(key) in name][:_MOST]
    if len(names) <= _COMPARED:
        similar = get_close_matches(str(key), list(names.values()), n=_MOST, cutoff=0.5)
        near += [name for name in similar if name not in near]
    known = requests_words(
        {one: name.removesuffix(f" (r{one})") * (name != f"r{one}") for one, name in names.items()}
    )
    if near and not str(key).isdigit():
        known = f"similar: {', '.join(near[:_MOST])}"
    raise WhyError(f"request: {key!r:.99} is not in this log; {known}")


def _named(names: Mapping[int, str], key: int | str) -> int | None:
    parts = dict[str, int]()  # labels of which the key is a part
    for request, name in names.items():
        label = name.removesuffix(f" (r{request})")
        if key in (name, label, f"r{request}", str(request)):
            return request
        if key and str(key) in label:
            parts.setdefault(label, request)
    return next(iter(parts.values())) if len(parts) == 1 and not str(key).isdigit() else None
