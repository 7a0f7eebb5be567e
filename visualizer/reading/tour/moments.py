"""The moments of a log with an index that a tour may tell, and what happens in them.

Where the largest of each kind is follows from what is known of the steps and the requests, and from the
events of a few kinds, which need no state. Only the steps around it are folded.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import chain, islice
from operator import itemgetter

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog, Kind
from visualizer.indexed.indexed_log import IndexedLog
from visualizer.indexed.known import Known
from visualizer.indexed.part import begin_of
from visualizer.logs import events_between, state_before
from visualizer.reading.tour.happenings import Happenings, Loss
from visualizer.reading.tour.lives import Times

_SIZES = (v.Keyframe, v.RadixInserted, v.RadixExtended, v.RadixSplit, v.PrefixAdopted)
_FAILED = 2  # steps that may have failed: one of them may have begun before the log does
_TRIED = 64  # preemptions, of those that seem to have cost most
_STEP_BITS = 40  # of a request and a step in one number
_ROWS = ("prefill", "catchup", "decode")
_RESTART = 3  # steps in which a victim computes the rest again, if the first ones were in vain


def happenings_of(log: EventLog, known: Known, times: Times) -> Happenings:
    """Return what happens in a log."""
    if not isinstance(log, IndexedLog):
        return Happenings([(State(), log)])
    step, evicted = _largest_eviction(log)
    moments = [] if step is None else [_step(log, step)]
    moments += [*_of_requests(log, known), *_rare(log), *_failed(log, known)]
    end = log.state()
    found = Happenings(_parts(log, moments))
    found.evicted, found.state = evicted, end
    loss = _largest_loss(log, known, times, end)
    found.losses = [] if loss is None else [loss]
    return found


def _parts(log: EventLog, moments: Iterable[range]) -> Iterator[tuple[State, Iterator[v.Event]]]:
    """Yield the state before each moment and its events, in order, none twice."""
    begin = end = 0
    for one in sorted(moments, key=lambda one: one.start):
        if one.start > end:
            if end > begin:
                yield state_before(log, begin), events_between(log, begin, end)
            begin = one.start
        end = max(end, one.stop)
    if end > begin:
        yield state_before(log, begin), events_between(log, begin, end)


def _around(log: EventLog, at: int) -> range:
    """Return the events from the start of the step that event `at` is in to the start of the next."""
    begin, end = at, at + 1
    while begin > 0 and not isinstance(log[begin], v.StepStarted):
        begin -= 1
    while end < len(log) and not isinstance(log[end], v.StepStarted):
        end += 1
    return range(begin, end)


def _step(log: EventLog, step: int) -> range:
    """Return the events of a step; of one that began before the log does, the first ones."""
    begin, end = begin_of(log, step), begin_of(log, step + 1) if step else _around(log, 0).stop
    return range(begin if begin < end else 0, end)


def _largest_eviction(log: EventLog) -> tuple[int | None, int]:
    """Return the step in which most blocks were evicted for one request, and how many were in all."""
    sizes = dict[int, int]()  # blocks of each node of a radix tree
    now, step, whole = Counter[int](), 0, 0  # by request, in the current step
    most = 0, False, 0
    for event in log.each(*_SIZES, v.StepStarted, v.RadixEvicted, v.BlockEvicted):
        match event:
            case v.RadixEvicted() | v.BlockEvicted():
                blocks = sizes.pop(event.node) if isinstance(event, v.RadixEvicted) else 1
                if event.reason == "room":
                    whole += blocks
                    now[event.needed_by] += blocks
                    most = max(most, (now[event.needed_by], event.needed_by >= 0, -step))
            case v.StepStarted():
                step = event.step
                now.clear()
            case v.RadixInserted():
                sizes[event.node] = len(event.blocks)
            case v.RadixExtended():
                sizes[event.node] += len(event.blocks)
            case v.RadixSplit():
                sizes[event.upper] = event.at
                sizes[event.node] -= event.at
            case v.PrefixAdopted():
                share = len(event.blocks) // len(event.nodes)
                sizes = dict.fromkeys(event.nodes, share) | sizes
            case v.Keyframe():
                step = event.state.step
                sizes = {one.id: len(one.blocks) for one in event.state.nodes}
    return (-most[2] if most[0] else None), whole


def _of_requests(log: EventLog, known: Known) -> Iterator[range]:
    """Yield the moments of the largest hit and of the first requests that fail or are aborted."""
    hit, ends = (0, 0), dict[str, int]()
    for one in known.each_request():
        if one.forked is None and one.admitted is not None and one.admitted[0]:
            hit = max(hit, (one.admitted[1], -one.admitted[0]))
        if one.finished is not None and (reason := one.finished[1]) in ("error", "abort"):
            ends[reason] = min(one.finished[3], ends.get(reason, one.finished[3]))
    if hit[0]:
        yield _step(log, -hit[1])
    for seq in ends.values():
        yield _around(log, seq - known.run.first_seq)


def _rare(log: IndexedLog) -> Iterator[range]:
    """Yield the moments of the first copy, the first gap, and the longest pause."""
    for kind in (v.BlockCopied, v.EventsMissing):
        for at, _ in islice(_events(log, kind), 1):
            yield _around(log, at)
    begin, since, longest = 0, None, (-1, 0, 0)
    for at, event in _events(log, v.EnginePaused, v.EngineResumed):
        if isinstance(event, v.EnginePaused):
            begin, since = at, event.t.get("at")
        elif isinstance(event, v.EngineResumed) and since is not None and "at" in event.t:
            longest = max(longest, (event.t["at"] - since, -begin, -at))
            since = None
    if longest[0] >= 0:
        yield range(_around(log, -longest[1]).start, _around(log, -longest[2]).stop)


def _events(log: IndexedLog, *kinds: type[Kind]) -> Iterator[tuple[int, Kind]]:
    """Yield the events of some kinds that most chunks do not have, with their places in the log."""
    for number, end in enumerate(log.index.ends):
        if log.index.events(number, kinds):
            begin = end - log.index.directory.chunks[number].events
            yield from (
                (at, one) for at, one in enumerate(log[begin:end], begin) if isinstance(one, kinds)
            )


def _failed(log: IndexedLog, known: Known) -> Iterator[range]:
    """Yield the moments of the first steps whose scheduling or draft model failed."""
    steps = (
        number
        for some in known.steps
        for number, seq, status in zip(some.step, some.scheduled, some.status, strict=True)
        if seq is None and status == "finished"
    )
    if not known.run.source:  # other engines do not record it
        for number in islice(steps, _FAILED):
            yield _step(log, number)
    if known.run.classes.get("drafter"):
        ends = (one for one in log.each(v.StepFinished) if one.draft_error)
        for one in islice(ends, 1):
            yield _step(log, one.step)


def _largest_loss(log: EventLog, known: Known, times: Times, end: State) -> Loss | None:
    """Return the preemption that cost its victim most; None: the log has none."""
    largest, found = (-1, 0, 0, 0), None
    victims = nlargest(_TRIED, _victims(known, times, end), key=itemgetter(0, 1, 2))
    for again, away, minus_step, one in victims:
        if (again, away, minus_step) < largest[:3]:
            break
        losses = Happenings(_parts(log, _of_victim(log, one))).losses
        its = [loss for loss in losses if loss.step == one.step]
        [at] = [at for at, loss in enumerate(its) if loss.request == one.request]
        if (exact := (its[at].again, away, minus_step, -at)) > largest:
            largest, found = exact, its[at]
    return found


def _victims(known: Known, times: Times, end: State) -> Iterator[tuple[int, int, int, Loss]]:
    """Yield the preemptions, and before each what decides: `again` and `computed` are upper limits."""
    is_async = bool(known.run.settings.get("async_scheduling"))
    again, late = Counter[int](), Counter[int]()
    for plans in known.plans:
        for request, tokens, lost_in in chain.from_iterable(plans.again):
            again[request << _STEP_BITS | lost_in] += tokens
    for row in chain.from_iterable(end.plans.values()):
        late[row.request] += row.count
    for one in known.each_request("admissions", *["segments"] * is_async):
        found = {step: tokens for step, tokens, resumed, _ in one.admissions if resumed}
        for step, computed, resumed in one.preemptions:
            ends = [
                computed + 1 if row.kind == "decode" else row.start + row.count
                for row in (one.segments if is_async else ())  # an earlier step may not have ended
                if row.begin < step <= (row.end or 0) + 1 and row.kind in _ROWS
            ]
            loss = Loss(one.id, step, -1, 0, max([computed, *ends]), [], resumed=resumed)
            if resumed is not None:
                tokens = again[one.id << _STEP_BITS | step] + late[one.id]
                loss.again = min(tokens, max(0, loss.computed - found.get(resumed, 0)))
            yield loss.again, times.away(loss), -step, loss


def _of_victim(log: EventLog, one: Loss) -> list[range]:
    """Return the moments in which a request is preempted and computes again what it lost."""
    moments = [_step(log, one.step)]
    if one.resumed is None:
        return moments
    begin, left, is_back = begin_of(log, one.resumed), _RESTART, False
    for at, event in enumerate(events_between(log, begin, len(log)), begin):
        match event:
            case v.Admitted(request=one.request):
                is_back = True
            case v.Preempted(request=one.request) | v.RequestFinished(request=one.request):
                left *= not is_back
            case v.StepScheduled() if is_back:
                left -= any(
                    row.request == one.request and row.start >= one.computed for row in event.rows
                )
        if not left:
            return [*moments, range(begin, at + 1)]
    return [*moments, range(begin, len(log))]
