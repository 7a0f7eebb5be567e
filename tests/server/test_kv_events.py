"""KV events say what the prefix cache has, as vLLM's do, and arrive over ZMQ with replay."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.core.config import ConfigError
from engine.core.engine import Engine
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from server.core.event_log import Outbox
from server.core.kv_events import KVEvent, KVEvents
from server.core.kv_publisher import KVPublisher, endpoints
from tests.engine.workloads import make_engine, play, random_workload
from tests.facts import raises_naming
from tests.server.harness import get, post, serve_forked, start, trace
from tests.server.subscriber import Event, Subscriber, View, events_of
from tests.sources.kv_feed import folded

RECORDED = Path("tests/fixtures/vllm_kv_events.jsonl")
STORED = {
    *("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"),
    *("medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"),
}
REMOVED = {"type", "block_hashes", "medium", "group_idx"}


def as_dict(event: KVEvent) -> Event:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return {"type": type(event).__name__} | fields


def cached_prefixes(state: State) -> set[tuple[int, ...]]:
    """Every prefix of whole blocks that the folded tree has."""
    prefixes, size = set(), state.block_size
    for node in state.nodes:
        tokens = state.prefix_tokens(node)
        first = len(tokens) - len(state.nodes[node].tokens)
        prefixes |= {tuple(tokens[:end]) for end in range(first + size, len(tokens) + 1, size)}
    return prefixes


def test_a_subscriber_knows_exactly_the_cached_prefixes(soak, first_seed):
    """After every step of random workloads: splits, joins, duplicates, failed passes, drafts."""
    stored = 0
    for seed in range(first_seed, first_seed + (2_000 if soak else 40)):
        workload = random_workload(seed, may_be_async=True)
        outbox, state, events, view = Outbox(), State(), KVEvents(), View()

        def after_step(_engine: Engine) -> None:
            nonlocal stored
            for event in outbox.take():  # noqa: B023
                state.apply(event)  # noqa: B023
                stored += isinstance(event, v.BlocksStored | v.RadixInserted)
                change = events.apply(event)  # noqa: B023
                if change is not None:
                    view.apply(as_dict(change))  # noqa: B023
            known = list(view.prefixes.values())  # noqa: B023
            assert len(set(known)) == len(known)
            assert set(known) == cached_prefixes(state), seed  # noqa: B023

        engine = make_engine(workload, outbox)
        play(engine, workload, after_step)
        engine.clear_prefix_cache()
        after_step(engine)
        assert view.prefixes == {}
    assert stored > 100  # else the workloads show nothing


def test_the_hashes_are_those_of_vllm(monkeypatch):
    """Compared with what vLLM published, recorded with PYTHONHASHSEED=0."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    recorded = View()
    for line in RECORDED.read_text().splitlines():
        for event in json.loads(line)["batch"][1]:
            if event["type"] == "BlockStored":
                recorded.apply(event)
    assert len(recorded.prefixes) > 5
    assert max(map(len, recorded.prefixes.values())) > 32
    for prefix in recorded.prefixes.values():
        events, ours = KVEvents(), View()
        events.apply(run_started(32))
        events.apply(v.RequestArrived(1, list(prefix), [], "", 1, 1, 0, {}))
        stored = events.apply(v.RadixInserted(1, 1, 0, list(range(len(prefix) // 32))))
        assert stored is not None
        ours.apply(as_dict(stored))
        assert ours.prefixes.items() <= recorded.prefixes.items()
        assert prefix in ours.prefixes.values()


def run_started(block_size: int) -> v.RunStarted:
    return v.RunStarted(2, {"block_size": block_size}, {}, {}, {}, "wall")


@pytest.fixture(scope="module")
def publishing() -> Iterator[str]:
    with start(kv_events="0", engine={"block_size": 4, "max_kv_tokens": 96}) as server:
        yield server.url


@pytest.fixture
def served(publishing: str) -> Iterator[tuple[str, Subscriber]]:
    told = get(publishing, "/kv_event_sources")["0"]
    with Subscriber(told["endpoint"], told["replay_endpoint"], told["topic"]) as subscriber:
        yield publishing, subscriber


def ask(url: str, prompt: str, **more: str) -> None:
    body = {"prompt": prompt, "max_tokens": 6, "stream": False} | more
    assert post(url, "/v1/completions", body).status_code == 200


def replayed(subscriber: Subscriber) -> list[Event]:
    return [event for _, _, batch in subscriber.replay(0) for event in events_of(batch)]


def test_what_is_published_is_what_the_log_says(served):
    url, subscriber = served
    for prompt in ("the quick brown fox", "the quick brown dog", "a" * 60, "b" * 60, "the quick"):
        ask(url, prompt)
    ask(url, "salted", cache_salt="tenant 7")
    events, view = replayed(subscriber), View()
    assert ["tenant 7"] in [one["extra_keys"][0] for one in events if "extra_keys" in one]
    for event in events:
        view.apply(event)
    assert set(view.prefixes.values()) == cached_prefixes(folded([*trace(url)]))
    kinds = {"BlockStored": STORED, "BlockRemoved": REMOVED, "AllBlocksCleared": {"type"}}
    assert {event["type"] for event in events} == set(kinds)
    for event in events:
        assert set(event) == kinds[event["type"]]
        assert event.get("medium", "GPU") == "GPU"


def test_messages_are_numbered_and_a_gap_is_replayed(served):
    url, subscriber = served
    number = 0
    while not subscriber.arrives(100):  # a subscription takes a moment to arrive
        number += 1
        ask(url, f"{number} bottles of beer")
    topic, first, batch = subscriber.receive()
    ask(url, "and one more")
    assert topic == b"kv"
    everything = subscriber.replay(0)
    assert [number for _, number, _ in everything] == list(range(len(everything)))
    assert everything[first] == (topic, first, batch)
    assert first > 0  # the run's beginning was before the subscription: a gap
    assert subscriber.replay(first) == everything[first:]
    assert subscriber.replay(len(everything)) == []


def test_a_restarted_engine_begins_with_an_empty_cache(served):
    url, subscriber = served
    ask(url, "the quick brown fox")
    before = len(subscriber.replay(0))
    body = {"settings": {"prefix_cache": "hash", "block_size": 8}}
    assert post(url, "/engine/restart", body).status_code == 200
    ask(url, "the quick brown fox jumps")
    again = [event for _, _, batch in subscriber.replay(before) for event in events_of(batch)]
    assert [event["type"] for event in again[:2]] == ["AllBlocksCleared", "BlockStored"]
    view = View()
    for event in again:
        view.apply(event)
    assert set(view.prefixes.values()) == cached_prefixes(folded([*trace(url)]))


def test_the_command_publishes_what_the_hash_cache_has():
    with serve_forked(prefix_cache="hash", kv_events="0") as server:
        ask(server.url, "Once upon a time there was a fox who lived near a river. The fox")
        told = get(server.url, "/kv_event_sources")["0"]
        with Subscriber(told["endpoint"], told["replay_endpoint"]) as subscriber:
            view = View()
            for event in replayed(subscriber):
                view.apply(event)
        assert view.prefixes
        assert set(view.prefixes.values()) == cached_prefixes(folded([*trace(server.url)]))


def test_a_slow_subscriber_sees_a_gap_that_is_replayed():
    """Nothing waits for it: ZMQ drops what it does not read."""
    publisher = KVPublisher("0")
    tokens = list(range(100_000, 100_512))
    publisher.publish([run_started(512)])
    step = 0

    def publish() -> None:
        nonlocal step
        step += 1
        arrived = v.RequestArrived(step, [step, *tokens[1:]], [], "", 1, 1, 0, {})
        publisher.publish([arrived, v.BlocksStored(step, 0, [step], [0])])

    with Subscriber(publisher.endpoint, publisher.replay_endpoint, rcvhwm=1, rcvbuf=4096) as slow:
        while not slow.arrives(10):
            publish()
        for _ in range(4_000):
            publish()
        received = [slow.receive()]
        while slow.arrives(100):
            received.append(slow.receive())
        publish()  # the first one after the gap
        received.append(slow.receive())
        numbers = [number for _, number, _ in received]
        missed = set(range(numbers[0], step + 1)) - set(numbers)
        assert missed
        again = slow.replay(min(missed))
        assert missed <= {number for _, number, _ in again}
        assert set(received) & set(again)
    publisher.close()


def test_a_wrong_question_is_ignored():
    publisher = KVPublisher("0")
    publisher.publish([run_started(4)])
    addresses = publisher.endpoint, publisher.replay_endpoint
    with Subscriber(*addresses) as subscriber, Subscriber(*addresses) as cut_off:
        cut_off._replay.send_multipart([b"", b"x" * 4096])
        for wrong in ([b"alone"], [b"", b"", b"", b""]):
            subscriber._replay.send_multipart(wrong)
        assert len(subscriber.replay(0)) == 1
    publisher.close()


@pytest.mark.parametrize("value", ["", "65535", "127.0.0.1:5557", "tcp://*", "ipc:///tmp/x", "-1"])
def test_a_wrong_address_is_one_line(value):
    with raises_naming(ConfigError, "kv_events", "tcp://ADDRESS:PORT", repr(value)):
        endpoints(value)
