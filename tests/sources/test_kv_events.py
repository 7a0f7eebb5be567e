"""KV events of vLLM and SGLang become a log: both encodings, tiers, ranks, gaps, unknown beginnings."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.core.log import LogError
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.state import NodeState
from tests.parity.recorded_steps import read_recording
from tests.sources.kv_feed import chains, folded, line, removed, stored, translated
from visualizer.sources import read_source
from visualizer.sources.frames import write_frame
from visualizer.sources.kv_events import KVTranslator

VLLM = Path("tests/fixtures/vllm_kv_events.jsonl")
AB, CD, EF = [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]


def after(*messages: list[Any]) -> State:
    """The state after messages with these events."""
    return folded(translated([line(number, events) for number, events in enumerate(messages)]))


def node(state: State, name: int | str) -> NodeState:
    """The node of a hash."""
    wanted = f"{name:016x}" if isinstance(name, int) else name
    [found] = [one for one in state.nodes.values() if one.hash == wanted]
    return found


def gaps(lines: list[bytes]) -> list[tuple[int, str]]:
    found = [one for one in translated(lines) if isinstance(one, v.EventsMissing)]
    return [(one.count, one.message) for one in found]


# What vLLM has written


def test_a_capture_of_vllm_is_rebuilt() -> None:
    """Compared with a plain reading of the same events: the prefix of each hash."""
    prefixes: dict[int | None, tuple[int, ...]] = {None: ()}
    for text in VLLM.read_text().splitlines():
        for event in json.loads(text)["batch"][1]:
            above = prefixes[event["parent_block_hash"]]
            for at, one in enumerate(event["block_hashes"]):
                above += tuple(event["token_ids"][32 * at : 32 * (at + 1)])
                prefixes[one] = above
    log = read_recording(VLLM)
    assert chains(log.state()) == set(prefixes.values()) - {()}
    times = [round(json.loads(text)["batch"][0] * 1e6) for text in VLLM.read_text().splitlines()]
    assert [one.t["end"] for one in log.of(v.StepFinished)] == [at - times[0] for at in times]


def test_frames_and_decoded_messages_are_the_same_log() -> None:
    lines = VLLM.read_bytes().splitlines()
    raw = []
    for one in lines:
        decoded = json.loads(one)
        payload = msgspec.msgpack.encode(decoded["batch"])
        raw.append(write_frame(decoded["topic"].encode(), decoded["seq"], payload, 1e9))
    assert translated(raw) == translated(lines)


def test_arrays_and_maps_are_the_same_log() -> None:
    """vLLM wrote arrays before mid-2026, with fewer fields at first."""
    maps = [
        [stored([1, 2], None, AB + CD, lora_name="sql", group_idx=0)],
        [stored([3], 2, EF, medium="CPU"), removed([1], group_idx=0)],
        [{"type": "AllBlocksCleared"}],
    ]
    arrays: list[list[Any]] = [
        [["BlockStored", [1, 2], None, AB + CD, 4, None, "GPU", "sql", None, 0, "full"]],
        [["BlockStored", [3], 2, EF, 4, None, "CPU"], ["BlockRemoved", [1], "GPU", 0]],
        [["AllBlocksCleared"]],
    ]
    assert translated([line(i, one) for i, one in enumerate(maps)]) == translated(
        [line(i, one) for i, one in enumerate(arrays)]
    )


def test_hashes_may_be_bytes_or_signed() -> None:
    long, above = bytes(range(32)), b"\xff" * 32
    state = after([stored([above], None, AB), stored([long], above, CD)], [stored([-1], long, EF)])
    assert chains(state) == {(*AB,), (*AB, *CD), (*AB, *CD, *EF)}
    assert {one.hash for one in state.nodes.values()} == {None, "f" * 16, "0001020304050607"}


# The cache


def test_what_was_stored_before_the_log_begins() -> None:
    """A block whose parent was never reported is below a node of which only the hash is known."""
    state = after([stored([2], 1, CD)], [stored([3], 1, EF)])
    parent = node(state, 1)
    assert (parent.blocks, parent.tokens, parent.parent) == ([], [], 0)
    assert {node(state, 2).parent, node(state, 3).parent} == {parent.id}
    state = after([stored([2], 1, CD)], [stored([1], None, AB)])
    assert chains(state) == {(*AB,), (*AB, *CD)}
    state = after([stored([3], 2, EF)], [stored([1], None, AB), stored([2], 1, CD)])
    assert chains(state) == {(*AB,), (*AB, *CD), (*AB, *CD, *EF)}


def test_an_unknown_block_is_removed() -> None:
    log = translated([line(0, [stored([1], None, AB)]), line(1, [removed([9, 8])])])
    assert [one.reason for one in log if isinstance(one, v.BlockEvicted)] == ["room", "room"]
    assert chains(folded(log)) == {(*AB,)}


def test_removals_before_the_first_block_wait_for_its_size() -> None:
    lines = [line(0, [removed([9])]), line(1, [stored([1], None, AB)])]
    translator = KVTranslator()
    assert translator.feed(lines[0]) == []
    events = translator.feed(lines[1])
    assert sum(isinstance(one, v.StepStarted) for one in events) == 2
    assert chains(folded(events)) == {(*AB,)}
    lonely = translated(lines[:1])
    assert sum(isinstance(one, v.BlockEvicted) for one in lonely) == 1


def test_a_block_leaves_from_the_middle_of_a_chain() -> None:
    chain = [stored([1, 2, 3], None, AB + CD + EF)]
    state = after(chain, [removed([2])])
    assert node(state, 2).blocks == []
    assert node(state, 3).blocks
    state = after(chain, [removed([2])], [removed([3])])
    assert {one.hash for one in state.nodes.values()} == {None, f"{1:016x}"}
    state = after(chain, [removed([2])], [stored([2], 1, CD)])
    assert chains(state) == {(*AB,), (*AB, *CD), (*AB, *CD, *EF)}


def test_tiers_and_copies() -> None:
    """A copy in host memory comes without tokens; vLLM publishes each copy of a block."""
    both = after([stored([1], None, AB)], [stored([1], None, [], medium="CPU", block_size=0)])
    assert node(both, 1).media == ["GPU", "CPU"]
    messages: list[list[Any]] = [
        [stored([1], None, AB)],
        [stored([1], None, [], medium="CPU", block_size=0)],
        [removed([1])],
    ]
    below = after(*messages)
    assert node(below, 1).media == ["CPU"]
    assert chains(below) == {(*AB,)}
    assert chains(after(*messages, [removed([1], medium="CPU")])) == set()
    twice = after([stored([1], None, AB)], [stored([1], None, AB)], [removed([1])])
    assert chains(twice) == {(*AB,)}


def test_groups_ranks_and_adapters() -> None:
    grouped = after(
        [stored([1], None, AB, group_idx=0), stored([1], None, AB, group_idx=1)],
        [removed([1], group_idx=0)],
    )
    assert len(node(grouped, 1).media) == 1
    lines = [
        line(0, [stored([1], None, AB)]),
        line(0, [stored([1], None, AB, lora_name="sql")], rank=1),
        line(1, [{"type": "AllBlocksCleared"}], rank=0),
    ]
    state = folded(translated(lines))
    assert not gaps(lines)  # each rank counts for itself
    assert node(state, 1).media == ["GPU, rank 1, LoRA sql"]


def test_messages_before_the_first_one_are_not_missing() -> None:
    """`test_the_feed` has all gaps, and an engine that was started again."""
    assert gaps([line(5, [stored([1], None, AB)]), line(6, [stored([2], None, CD)])]) == []


# Files


def test_a_file_may_be_packed_and_torn(tmp_path: Path) -> None:
    lines = VLLM.read_bytes().splitlines(keepends=True)
    whole = read_source(b"".join(lines[:4]))
    packed = tmp_path / "capture.jsonl.gz"
    packed.write_bytes(gzip.compress(b"".join(lines[:4]) + lines[4][:50]))
    assert list(read_source(packed)) == list(whole)


WRONG: list[tuple[bytes, str]] = [
    (line(0, [{"type": "BlockMoved"}]), "a KV event is invalid: Invalid value 'BlockMoved'"),
    (line(0, [stored([1.5], None, AB)]), "a block hash must be 64 bits or up to 64 bytes, got 1.5"),
    (line(0, [stored([1 << 63], "x", AB)]), "a block hash must be .* got 'x'"),
    (line(0, [stored([1], None, AB, block_size=-4)]), "block_size must be from 1 to 1,048,576"),
    (
        write_frame(b"", 0, msgspec.msgpack.encode([-5.0, []]), 1.0),
        "the time of a KV-event message",
    ),
    (write_frame(b"", 0, msgspec.msgpack.encode([1.0]), 1.0), r"must be \[time, events, rank\]"),
    (write_frame(b"", 0, b"\x91", 1.0), "payload must be msgpack"),
    (b'{"seq": 1, "payload": "?"}', "payload must be base64"),
    (b'{"seq": -1, "batch": [1.0, []]}', "seq must be from 0"),
    (b'{"seq": 1, "batch": [1.0, [], "r"]}', "the rank of a KV-event message must be"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_damaged_line_is_refused(wrong: bytes, message: str) -> None:
    with pytest.raises(LogError, match=message) as error:
        KVTranslator().feed(wrong)
    assert "\n" not in str(error.value)


def test_a_chain_that_continues_itself_is_refused() -> None:
    lines = [line(0, [stored([2], 1, AB)]), line(1, [stored([1], 2, CD)])]
    translator = KVTranslator()
    translator.feed(lines[0])
    with pytest.raises(LogError, match="the chain of block 0000000000000001 continues itself"):
        translator.feed(lines[1])


def test_a_block_of_another_size_has_unknown_tokens() -> None:
    state = after([stored([1], None, AB)], [stored([2], 1, CD + EF, block_size=8)])
    assert node(state, 2).tokens == []
