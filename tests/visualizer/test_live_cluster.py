"""`watch` of a gateway: the kernel folds the cluster's feed and sends it to the page."""

import json
from typing import Any

import msgspec
import pytest
from httpx_sse import ServerSentEvent

from engine.cluster.cluster_log import ClusterLog, ClusterState
from tests.visualizer.clusters import three_replicas
from visualizer import watch
from visualizer.live.watch import LiveCluster

_encode = msgspec.json.Encoder().encode
LINES = [line.decode() for line in three_replicas().to_bytes().splitlines()]


@pytest.fixture
def sent(monkeypatch):
    """A widget that is not connected, and what it sends to the page."""
    widget = LiveCluster("http://127.0.0.1:9")
    widget.connected = True
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(widget.feed, "send", messages.append)
    return widget, messages


def numbered(lines: list[str], first: int) -> list[ServerSentEvent]:
    return [
        ServerSentEvent(event="message", data=line, id=f"run:{number}")
        for number, line in enumerate(lines, start=first)
    ]


def state_lines(count: int) -> list[str]:
    """The state after `count` events, as lines."""
    state = ClusterState()
    for event in list(three_replicas())[:count]:
        state.add(event)
    return [_encode(event).decode() for event in state.head()]


def test_the_page_gets_every_line_with_its_number(sent):
    widget, messages = sent
    widget._forward(numbered(LINES[:50], 0))
    widget._forward(numbered(LINES[50:], 50))
    assert [(one["first"] + one["count"], one["joins"]) for one in messages] == [
        (50, True),
        (len(LINES), False),
    ]
    assert "".join(one["text"] for one in messages) == "\n".join(LINES) + "\n"
    assert messages[1]["first"] == 50
    assert widget.states() == {
        replica: log.state().core() for replica, log in three_replicas().replicas.items()
    }


@pytest.mark.parametrize("stale", ["", "run:3"])
def test_a_present_state_is_sent_whole_even_if_it_arrives_in_parts(sent, stale):
    widget, messages = sent
    if stale:
        widget._forward(numbered(LINES[:4], 0))
        messages.clear()
    head = [ServerSentEvent(event="message", data=line, id=stale) for line in state_lines(400)]
    head[-1] = ServerSentEvent(event="message", data=head[-1].data, id="run:399")
    widget._forward(head[:3])
    assert messages == []
    widget._forward(head[3:])
    [message] = messages
    assert (message["first"], message["count"], message["joins"]) == (399, 1, True)
    assert message["text"].splitlines() == state_lines(400)
    widget._forward(numbered(LINES[400:410], 400))
    assert messages[1]["first"] == 400


def test_a_later_view_begins_with_the_present_state(sent):
    widget, messages = sent
    widget._forward(numbered(LINES[:300], 0))
    widget._forward([ServerSentEvent(event="status", data=json.dumps({"run": "run"}))])
    messages.clear()
    widget._send_state("later")
    [events, status] = messages
    assert (events["to"], events["first"], events["joins"]) == ("later", 299, True)
    log = ClusterLog.from_bytes(events["text"].encode())
    assert list(log.replicas) == ["0", "1", "2"]
    assert status["status"] == {"run": "run"}


def test_where_no_gateway_answers_it_is_the_board_of_one_server():
    board = watch("http://127.0.0.1:9")
    assert not isinstance(board, LiveCluster)
    board.close()
