"""KV moves from one server to another over HTTP, and a wrong body never reaches the engine."""

import json
import struct
import zlib
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from engine.core.log.vocabulary import Admitted, PrefixAdopted, RequestArrived
from engine.core.runner import KVFormat
from server.core.kv_transfer import (
    ExportedPages,
    KVLayout,
    decode_pages,
    encode_pages,
    max_body_bytes,
)
from server.http.errors import ApiError
from tests.server.harness import Caller, Serve, http, post, refusal, start, trace

KEY = "the cluster's key"
TOKENS = [10 + 7 * index % 1400 for index in range(100)]
LAYOUT = KVLayout(KVFormat("model", "float32", (2, 4), 8), 4, 16)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[httpx.Client, httpx.Client]]:
    options = dict(model="bundled", server={"cluster_key": KEY}, engine={"max_kv_tokens": 1024})
    headers = {"x-underglass-cluster-key": KEY}
    with (
        start(**options) as source,
        start(**options) as target,
        http(source.url, headers=headers) as one,
        http(target.url, headers=headers) as other,
    ):
        yield one, other


def complete(server: httpx.Client, tokens: list[int], max_tokens: int) -> list[str]:
    body = {"prompt": tokens, "max_tokens": max_tokens, "ignore_eos": True, "stream": False}
    body |= {"temperature": 1.0, "seed": 7, "logprobs": 0}
    answer = server.post("/v1/completions", json=body).raise_for_status().json()
    return answer["choices"][0]["logprobs"]["tokens"]


def test_a_prompt_computed_there_is_decoded_here(servers):
    source, target = servers
    expected = complete(source, TOKENS, 12)
    pages = source.post("/kv/export", json={"tokens": TOKENS}).content
    answer = target.post("/kv/adopt", params={"source": "replica 0"}, content=pages)
    blocks = len(TOKENS) // 16
    assert answer.json() == {"blocks": blocks, "sent": blocks, "bytes": blocks * 48 << 10}
    assert complete(target, TOKENS, 12) == expected
    log = trace(str(target.base_url))
    [adopted] = log.of(PrefixAdopted)
    assert (adopted.source, adopted.tokens) == ("replica 0", TOKENS[: blocks * 16])
    request = log.of(RequestArrived)[-1].request
    [admitted] = [event for event in log.of(Admitted) if event.request == request]
    assert admitted.blocks == adopted.blocks
    # The rest alone, after what is here already.
    longer = [*TOKENS, *TOKENS]
    complete(source, longer, 1)
    rest = source.post("/kv/export", json={"tokens": longer, "first": 6}).content
    assert target.post("/kv/adopt", content=rest).json()["blocks"] == len(longer) // 16 - 6
    assert complete(target, longer, 5) == complete(source, longer, 5)
    # What is not cached is an empty move.
    nothing = source.post("/kv/export", json={"tokens": [5] * 64}).content
    answer = target.post("/kv/adopt", content=nothing)
    assert answer.json() == {"blocks": 0, "sent": 0, "bytes": 0}


def test_only_the_gateway_moves_kv(servers, url):
    source, _ = servers
    for path in ("/kv/export", "/kv/adopt"):
        headers = {"x-underglass-cluster-key": "wrong"}
        answer = source.post(path, json={"tokens": TOKENS}, headers=headers)
        assert refusal(answer) == (403, "cluster_key")
    without_a_key = post(url, "/kv/export", {"tokens": TOKENS})
    assert refusal(without_a_key) == (403, "cluster_key")


def test_a_wrong_body_changes_nothing(servers):
    source, target = servers
    tokens = TOKENS[::-1]
    complete(source, tokens, 1)
    pages = source.post("/kv/export", json={"tokens": tokens}).content
    wrong = {"kv_truncated": pages[:-1], "kv_damaged": pages[:-1] + b"\x55", "kv_format": b"x" * 99}
    before = len(trace(str(target.base_url)))
    for code, body in wrong.items():
        assert refusal(target.post("/kv/adopt", content=body)) == (400, code)
    assert refusal(target.post("/kv/adopt", content=bytes(8 << 20))) == (413, "body_too_large")
    assert len(trace(str(target.base_url))) == before
    assert target.post("/kv/adopt", content=pages).json()["blocks"] == 6


def test_a_cut_body_is_a_plain_error(serve: Serve, tmp_path):
    log = tmp_path / "requests.jsonl"
    server = serve(checking=True, server={"cluster_key": KEY}, request_log=str(log))
    head = f"Host: localhost\r\nX-Underglass-Cluster-Key: {KEY}\r\nContent-Length: 99"
    caller = Caller.raw(server.url, "POST /kv/adopt HTTP/1.1", head, "", "UGKV")
    caller.half_close()
    assert not trace(server.url).of(PrefixAdopted)
    server.stop()
    [line] = [one for one in map(json.loads, log.open()) if one["route"] == "/kv/adopt"]
    assert line["status"] == 400
    assert "Traceback" not in server.output()


def exported(blocks: int = 2, first: int = 1) -> bytes:
    data = bytes(range(blocks * 8))
    return encode_pages(ExportedPages(LAYOUT, first, blocks, data), list(range(99)))


def altered(**changes: object) -> bytes:
    body = exported()
    [length] = struct.unpack_from(">I", body, 4)
    header = json.loads(body[8 : 8 + length]) | changes
    encoded = msgspec.json.encode(header)
    return body[:4] + struct.pack(">I", len(encoded)) + encoded + body[8 + length :]


def test_a_body_is_read_as_it_was_written():
    body = exported()
    header, pages = decode_pages(body, LAYOUT, 99)
    assert (header.first, header.blocks, header.tokens) == (1, 2, list(range(12)))
    assert (pages, header.crc32) == (bytes(range(16)), zlib.crc32(bytes(range(16))))
    whole = encode_pages(ExportedPages(LAYOUT, 0, 16, bytes(128)), [98] * 64)
    assert len(whole) <= max_body_bytes(LAYOUT)


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"version": 2}, "version", "kv_mismatch"),
        ({"model": "another"}, "model", "kv_mismatch"),
        ({"dtype": "bfloat16"}, "dtype", "kv_mismatch"),
        ({"shape": [2, 5]}, "shape", "kv_mismatch"),
        ({"block_size": 8}, "block_size", "kv_mismatch"),
        ({"first": -1}, "first", "kv_format"),
        ({"tokens": list(range(11))}, "tokens", "kv_format"),
        ({"tokens": [*range(11), 99]}, "tokens", "kv_format"),
        ({"tokens": [*range(11), -1]}, "tokens", "kv_format"),
        ({"tokens": "text"}, None, "kv_format"),
        ({"other": 1}, None, "kv_format"),
        ({"crc32": 1}, "crc32", "kv_damaged"),
        ({"first": 15, "tokens": [1] * 68}, "blocks", "kv_too_large"),
        ({"blocks": 1, "tokens": [1] * 8}, "blocks", "kv_format"),
        ({"blocks": 3, "tokens": [1] * 16}, None, "kv_truncated"),
    ],
)
def test_a_header_that_is_not_true_is_refused(changes, field, code):
    with pytest.raises(ApiError) as error:
        decode_pages(altered(**changes), LAYOUT, 99)
    assert (error.value.status, error.value.error["code"]) == (400, code)
    assert error.value.error["param"] == field
    if field is not None:
        assert field in str(error.value)


@pytest.mark.parametrize("length", range(0, len(exported()), 7))
def test_half_a_body_is_refused(length):
    with pytest.raises(ApiError) as error:
        decode_pages(exported()[:length], LAYOUT, 99)
    assert error.value.error["code"] == "kv_truncated"
