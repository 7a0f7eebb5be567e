"""Buffers: tokens kept under a name, held in the tree, given back with the session."""

from collections.abc import Iterator

import pytest

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from tests.server.harness import Serve, get, trace, watch
from tests.server.lmtp.wire import Wire, letters

ENGINE = {"block_size": 4, "max_kv_tokens": 256}


@pytest.fixture
def url(serve: Serve) -> Iterator[str]:
    yield serve(engine=ENGINE).url


def state(url: str) -> State:
    """The folded log, once the server has nothing left to do."""
    return trace(url).state()


def test_a_stream_goes_on_after_what_was_kept(url):
    with Wire(url) as wire:
        wire.generate(1, [120] * 8, max_tokens=4, keep="tale")
        kept = wire.next("MSG", 1, "buffer")
        assert kept == {"stream_id": 1, "status": "kept", "buffer": "tale", "tokens": 12, "held": 8}
        assert letters(wire.tokens(1)) == "abcd"
        assert wire.say(2, [121], max_tokens=2, **{"from": "tale"}) == "ab"
    arrived = trace(url).of(v.RequestArrived)
    assert arrived[1].prompt == [120] * 8 + [97, 98, 99, 100] + [121]


def test_what_is_kept_is_a_lock_in_the_tree_that_outlives_its_request(url):
    with Wire(url, additional_headers={"X-Client": "Ada"}) as wire:
        wire.say(1, [120] * 8, max_tokens=5, keep="tale")
        now = state(url)
        assert not now.requests
        [hold] = now.holds.values()
        assert (hold.label, len(hold.block_table)) == ("Ada", 3)
        assert {node.lock_ref for node in now.nodes.values() if node.blocks} == {1}
        assert get(url, "/health")["blocks"]["cached"] == 0  # nothing of it can be evicted
        wire.say(2, [121], max_tokens=1, **{"from": "tale"})
        assert [len(one.blocks) for one in trace(url).of(v.Admitted)] == [0, 3]


def test_a_buffer_is_released_by_message(url):
    with Wire(url) as wire:
        wire.say(1, [120] * 8, max_tokens=1, keep="tale")
        wire.send("RELEASE", stream_id=2, buffer="tale")
        assert wire.next("MSG", 2)["status"] == "released"
        wire.send("RELEASE", stream_id=3, buffer="tale")
        assert wire.next("MSG", 3)["code"] == "no_such_buffer"
        assert wire.refused(4, [121], **{"from": "tale"})["code"] == "no_such_buffer"
        with watch(url) as feed:
            while feed.state.holds:
                next(iter(feed))


def test_buffers_end_with_their_connection(url):
    with watch(url) as feed:
        with Wire(url) as wire:
            for stream, name in enumerate(["one", "two"]):
                wire.say(stream, [120 + stream] * 8, max_tokens=1, keep=name)
            feed.until_kind(v.PrefixHeld, 2)
        feed.until_kind(v.PrefixReleased, 2)
        assert not feed.state.holds
        assert not any(node.lock_ref for node in feed.state.nodes.values())


def test_keeping_under_the_same_name_replaces_what_was_there(url):
    with Wire(url) as wire:
        for stream in range(3):
            wire.say(stream, [120 + stream] * 8, max_tokens=1, keep="tale")
        assert len(state(url).holds) == 1
        wire.say(9, [97], max_tokens=1, **{"from": "tale"})
    assert trace(url).of(v.RequestArrived)[-1].prompt == [122] * 8 + [97, 97]


def test_all_buffers_together_hold_a_quarter_of_memory_at_most(url):
    """Tokens that are not held are kept all the same, and computed again."""
    blocks = ENGINE["max_kv_tokens"] // ENGINE["block_size"]
    with Wire(url) as wire, Wire(url) as other:
        for stream in range(8):
            one = (wire, other)[stream % 2]
            one.generate(stream, [100 + stream] * 24, max_tokens=1, keep=f"{stream}")
            kept = one.next("MSG", stream, "buffer")
            assert kept["tokens"] == 25
            one.tokens(stream)
        held = {block for hold in state(url).holds.values() for block in hold.block_table}
        assert len(held) == blocks / 4
        other.say(20, [97], max_tokens=1, **{"from": "7"})
        assert trace(url).of(v.RequestArrived)[-1].prompt == [107] * 24 + [97, 97]


def test_a_session_has_so_many_buffers_and_no_more(url):
    with Wire(url) as wire:
        for stream in range(64):
            wire.say(stream, [120], max_tokens=1, keep=f"{stream}")
        assert wire.refused(64, [120], max_tokens=1, keep="64")["code"] == "buffers_full"
        wire.send("RELEASE", stream_id=65, buffer="3")
        wire.next("MSG", 65)
        assert wire.say(66, [120], max_tokens=1, keep="64") == "a"


def test_running_calls_count_towards_the_limit(serve):
    url = serve(paused=True, engine=ENGINE).url  # all of them are queued, none has ended
    with Wire(url) as wire:
        for stream in range(64):
            wire.queued(stream, [120], max_tokens=1, keep=f"{stream}")
        wire.generate(64, [120], max_tokens=1, keep="64")
        while not (answers := [item for _, item in wire.items if item["stream_id"] == 64]):
            wire.items += wire.receive()
        assert answers[0].get("code") == "buffers_full"
        wire.generate(66, [120], max_tokens=1, keep="63")  # the same buffer again
        assert wire.next("MSG", 66)["status"] == "queued"
        wire.send("CANCEL", stream_id=0)
        assert wire.next("MSG", 0, "status")["status"] == "cancelled"
        wire.generate(67, [120], max_tokens=1, keep="67")  # in the place of the cancelled one
        assert wire.next("MSG", 67)["status"] == "queued"


def test_what_failed_is_not_kept(url):
    with Wire(url) as wire:
        assert (
            wire.refused(1, [120] * 8, keep="tale", user="fail-after-2")["code"]
            == "forward_pass_failed"
        )
        assert wire.refused(2, [121], **{"from": "tale"})["code"] == "no_such_buffer"
    assert not trace(url).of(v.PrefixHeld)
