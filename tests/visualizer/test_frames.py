"""The frames agree with the engine's requests and with the folded state."""

import math
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from engine import EventLog
from engine.core.log import State
from engine.core.log import vocabulary as v
from engine.core.request import Request
from tests.engine.workloads import make_engine, play, random_workload
from visualizer import read
from visualizer.reading.rows import OutputTokenRow, RequestRow, StepRow

FRAMES = {  # the first field of a request's and of a step's row is the frame's index
    "requests": RequestRow.__struct_fields__[1:],
    "steps": StepRow.__struct_fields__[1:],
    "tokens": OutputTokenRow.__struct_fields__,
}


@cache
def recorded(seed: int, window: int | None = None) -> tuple[EventLog, dict[int, Request]]:
    workload = random_workload(seed, may_be_begun=True)
    log = EventLog(window)
    played = play(make_engine(workload, log), workload)
    return log, {request.id: request for request in played}


def missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def plain(value: object) -> object:
    return None if missing(value) else value


@pytest.fixture
def seeds(soak, first_seed):
    return range(first_seed, first_seed + (1_500 if soak else 60))


def test_tokens_are_what_the_engine_gave_its_requests(seeds):
    kinds: Counter[str] = Counter()
    for seed in seeds:
        log, played = recorded(seed)
        frame = read(log).tokens
        for id_, of_one in frame.groupby("request"):
            request = played[id_]
            begun = len(request.output_ids) - len(of_one)  # tokens that another engine generated
            assert begun == len(
                next((e.output for e in log.of(v.RequestArrived) if e.request == id_), [])
            )
            assert of_one["id"].tolist() == request.output_ids[begun:]
            assert of_one["index"].tolist() == list(range(begun, begun + len(of_one)))
            assert of_one["text"].tolist() == request.texts[request.prompt_length + begun :]
            logprobs = np.where(of_one.forced, 0.0, of_one.logprob)
            assert logprobs.tolist() == pytest.approx(request.logprobs[begun:], abs=1e-4)
            assert missing(of_one.gap_ms.iloc[0]) and of_one.gap_ms.iloc[1:].notna().all()
            begin, end = of_one.time_ms.iloc[0], of_one.time_ms.iloc[-1]
            gaps = end - begin - paused_ms(log, round(begin * 1000), round(end * 1000))
            assert of_one.gap_ms.iloc[1:].sum() == pytest.approx(gaps)
            # Drafts that came true stand before the token that was sampled, a tool's behind it.
            for _, gained in of_one.groupby("step"):
                marks = gained.forced.astype(int) - gained.drafted.astype(int)
                assert marks.is_monotonic_increasing
        begun = sum(len(e.output) for e in log.of(v.RequestArrived) if e.request in played)
        assert len(frame) + begun == sum(len(request.output_ids) for request in played.values())
        kinds += Counter(forced=frame.forced.sum(), drafted=frame.drafted.sum())
    assert kinds["forced"] > 20 and kinds["drafted"] > 20, "the workloads show too little"


def paused_ms(log: EventLog, begin: int, end: int) -> float:
    """The time between two times in which the engine was paused, less the passes in it."""

    def overlap(*parts: tuple[int, int]) -> int:
        return max(0, min(hi for _, hi in parts) - max(lo for lo, _ in parts))

    pauses = [event.t["at"] for event in log.of(v.EnginePaused)]
    resumes = [event.t["at"] for event in log.of(v.EngineResumed)]
    passes = [(one.t["scheduled"], one.t["end"]) for one in log.of(v.StepFinished)]
    total = 0
    for pause in zip(pauses, resumes, strict=True):
        total += overlap((begin, end), pause)
        total -= sum(overlap((begin, end), pause, one) for one in passes)
    return total / 1000


def test_requests_are_what_the_events_say_of_each(seeds):
    seen: Counter[str] = Counter()
    for seed in seeds:
        log, played = recorded(seed)
        frame = read(log).requests
        assert set(played) <= set(frame.index)  # one aborted before any step never was in `played`
        for id_, row in frame.iterrows():
            expect = facts_of(log, id_)
            found = {name: plain(row[name]) for name in expect}
            assert found.pop("policy_key") == expect.pop("policy_key")
            assert found == pytest.approx(expect), (seed, id_)
            if id_ in played:
                request = played[id_]
                assert row.label == request.label and row.priority == request.priority
                assert (row.root, row["sample"]) == (request.root, request.sample)
                assert row.output_tokens == len(request.output_ids)
                assert row.finish_reason == request.finish_reason
                assert row.message == request.error
            seen[str(row.finish_reason)] += 1
            seen["samples"] += row["sample"] > 0
            seen["matched"] += bool(row.matched)
            seen["preempted"] += row.preemptions > 0
            seen["cached"] += bool(plain(row.cached_tokens))
        assert frame.preemptions.sum() == len(log.of(v.Preempted))
    wanted = {"stop", "length", "abort", "error", "samples", "matched", "preempted", "cached"}
    assert all(seen[kind] for kind in wanted), f"the workloads show too little: {seen}"


def facts_of(log: EventLog, id_: int) -> dict[str, object]:
    """Compute one request's row by brute force, from its events alone."""
    root = next(e for e in log.of(v.RequestArrived) if e.request <= id_ < e.request + e.n)
    arrived, block_size, step = root.t["at"], log[0].settings["block_size"], 0
    times, forced, drafts, accepted, open_drafts = [], 0, 0, 0, 0
    facts: dict[str, object] = {"prompt_tokens": len(root.prompt), "max_tokens": root.max_tokens}
    facts |= {"arrived_ms": arrived / 1000, "cached_tokens": None, "admitted_step": None}
    facts |= {"queue_ms": None, "first_token_step": None, "finished_step": None, "policy_key": None}
    facts |= {"matched": None, "finish_reason": None, "preemptions": 0}
    for event in log:
        if event is root:
            facts["arrived_step"] = step + 1
        if isinstance(event, v.StepStarted):
            step, open_drafts = event.step, 0
        elif isinstance(event, v.Admitted) and event.request == root.request and not event.resumed:
            facts["cached_tokens"] = len(event.blocks) * block_size
            facts["admitted_step"], facts["policy_key"] = step, tuple(event.key)
        elif isinstance(event, v.Preempted) and event.request == id_:
            facts["preemptions"] += 1
        elif isinstance(event, v.StepScheduled):
            open_drafts = sum(len(r.drafts) for r in event.rows if r.request == id_)
        elif isinstance(event, v.StepFinished):
            if facts["admitted_step"] == step:
                waited = event.t["start"] - arrived
                facts["queue_ms"] = waited / 1000 - paused_ms(log, arrived, event.t["start"])
            if facts["finish_reason"] is None:
                drafts += open_drafts
            for gain in event.tokens:
                if gain.request == id_:
                    times += [event.t["end"]] * len(gain.ids)
                    facts["first_token_step"] = facts["first_token_step"] or step
                    forced, accepted = forced + gain.forced, accepted + gain.accepted
        elif isinstance(event, v.RequestFinished) and event.request == id_:
            facts |= {
                "finish_reason": event.reason,
                "finished_step": max(step, facts["arrived_step"]),
            }
            facts["matched"] = event.matched
    gaps = [(b - a) / 1000 - paused_ms(log, a, b) for a, b in pairwise(times)]
    paused = paused_ms(log, arrived, times[0]) if times else 0
    if root.output:  # another engine generated its first token, and its first gaps
        facts["first_token_step"], gaps = None, []
    return facts | {
        "output_tokens": len(root.output) + len(times),
        "forced_tokens": forced,
        "drafted_tokens": drafts,
        "accepted_tokens": accepted,
        "ttft_ms": (times[0] - arrived) / 1000 - paused if times and not root.output else None,
        "e2e_ms": (times[-1] - arrived) / 1000 if times else None,
        "itl_ms": sum(gaps) / len(gaps) if gaps else None,
        "itl_p95_ms": float(np.percentile(gaps, 95)) if gaps else None,
        "itl_max_ms": max(gaps) if gaps else None,
    }


def test_steps_add_up_with_the_folded_state_and_the_other_frames(seeds):
    seen: Counter[str] = Counter()
    for seed in seeds:
        log, _ = recorded(seed)
        frame = read(log).steps
        kinds = frame.prefill_tokens + frame.catchup_tokens + frame.decode_tokens
        assert (frame.tokens == kinds).all()
        assert (
            (frame.used_blocks + frame.cached_blocks + frame.free_blocks)
            .eq(log[0].settings["num_blocks"])
            .all()
        )
        per_step = read(log).tokens.groupby("step")["id"].count().reindex(frame.index, fill_value=0)
        assert (frame.sampled_tokens + frame.forced_tokens == per_step).all()
        assert frame.forced_tokens.sum() == read(log).tokens.forced.sum()
        assert frame.accepted_tokens.sum() == read(log).tokens.drafted.sum()
        assert frame.preempted.sum() == len(log.of(v.Preempted))
        assert frame.admitted.sum() == len(log.of(v.Admitted))
        begun = [i for i, event in enumerate(log) if isinstance(event, v.StepStarted)] or [len(log)]
        assert frame.arrived.sum() == count(log[: begun[-1]], v.RequestArrived) * bool(len(frame))
        assert frame.finished.sum() == count(log[begun[0] :], v.RequestFinished)
        for step, row in brute_steps(log).items():
            assert {name: plain(frame.loc[step, name]) for name in row} == row, (seed, step)
        seen += Counter(evicted=frame.evicted_blocks.sum(), again=frame.catchup_tokens.sum())
    assert min(seen.values()) > 20, f"the workloads show too little: {seen}"


def count(events: list[v.Event], kind: type) -> int:
    return sum(isinstance(event, kind) for event in events)


def brute_steps(log: EventLog) -> dict[int, dict[str, object]]:
    """Memory by each block's owners, and rows by the tokens that each request had."""
    rows: dict[int, dict[str, object]] = {}
    state = State()
    for event in log:
        if isinstance(event, v.RadixEvicted) and state.step:
            rows[state.step]["evicted_blocks"] += len(state.nodes[event.node].blocks)
        if isinstance(event, v.BlockEvicted) and state.step:
            rows[state.step]["evicted_blocks"] += 1
        state.apply(event)
        if isinstance(event, v.StepStarted):
            rows[state.step] = {"evicted_blocks": 0}
        elif isinstance(event, v.StepScheduled):
            read = {block for request in state.requests.values() for block in request.block_table}
            idle = [  # no request reads them
                block
                for node in state.nodes.values()
                for block in node.blocks + node.copies
                if block not in read
            ]
            counts = Counter(
                "prefill"
                if r.start < state.requests[r.request].prompt_length
                else "decode"
                if r.start + r.count - len(r.drafts) == len(state.requests[r.request].tokens)
                and r.count - len(r.drafts) == 1
                else "catchup"
                for r in event.rows
                for _ in range(r.count)
            )
            rows[state.step] |= {
                "cached_blocks": len(idle),
                "free_blocks": sum(count == 0 for count in state.refs),
                "running": len(state.running),
                "waiting": len(state.waiting),
                "batch": len(event.rows),
                "drafted_tokens": sum(len(r.drafts) for r in event.rows),
                **{f"{kind}_tokens": counts[kind] for kind in ("prefill", "decode", "catchup")},
            }
        elif isinstance(event, v.StepFinished):
            times = {name: event.t[name] / 1000 for name in ("start", "end")}
            rows[state.step] |= {"start_ms": times["start"]}
            rows[state.step] |= {"duration_ms": (event.t["end"] - event.t["start"]) / 1000}
    return rows


def test_a_window_tells_what_it_knows_and_nothing_else(seeds):
    """Values of a window's frames equal the whole log's; values that need the past are missing."""
    gaps = 0
    for seed in seeds[::2]:
        whole, _ = recorded(seed)
        part, _ = recorded(seed, window=15 + seed % 60)
        if not isinstance(part[0], v.Keyframe):
            continue
        deterministic = [name for name in FRAMES["requests"] if not name.endswith("_ms")]
        full, known = read(whole).requests, read(part).requests
        assert {one.id for one in part[0].state.requests} <= set(known.index)
        for id_, row in known.iterrows():
            for name in deterministic:
                if missing(row[name]):
                    gaps += not missing(full.loc[id_, name])
                else:
                    assert row[name] == full.loc[id_, name], (seed, id_, name)
            came_before = missing(row.arrived_step)
            assert came_before == (row.root in {one.root for one in part[0].state.requests})
            timed = ("arrived_ms", "queue_ms", "ttft_ms", "e2e_ms")
            assert not came_before or all(missing(row[name]) for name in timed)
        names = [name for name in FRAMES["steps"] if not name.endswith("_ms")]
        first = part[0].state.step
        late = read(whole).steps[names]
        late = late[late.index > first + 1]  # earlier requests are truncated in the first
        steps = read(part).steps
        pd.testing.assert_frame_equal(steps[names].loc[late.index], late)
        assert all(step > first for step in steps.index)
        columns = ["request", "index", "step", "id", "text", "forced", "drafted"]
        tokens = read(part).tokens[columns]
        tail = read(whole).tokens[columns].tail(len(tokens)).reset_index(drop=True)
        pd.testing.assert_frame_equal(tokens, tail)
    assert gaps > 100, "no window hid anything"


def test_a_log_without_times_has_the_same_counts_and_no_times():
    log, _ = recorded(3)
    bare = EventLog.from_bytes(b"".join(line + b"\n" for line in log.deterministic()))
    for name, columns in FRAMES.items():
        timed = [column for column in columns if column.endswith("_ms") or column == "logprob"]
        with_times, without = getattr(read(log), name), getattr(read(bare), name)
        assert without[timed].isna().all(axis=None)
        pd.testing.assert_frame_equal(
            with_times.drop(columns=timed), without.drop(columns=timed), check_exact=True
        )
