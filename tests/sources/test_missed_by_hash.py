"""A recording of vLLM without token ids has block hashes, and they say why a request missed."""

import gzip
import json

from engine.events import EventLog
from tests.recorders.scenarios import RECORDINGS
from visualizer.sources import read_source


def without_tokens(name: str) -> EventLog:
    """Return a recording as `underglass_vllm` writes it by default."""
    lines = map(json.loads, gzip.decompress((RECORDINGS / name).read_bytes()).splitlines())
    kept = []
    for line in lines:
        if line["type"] == "pieces":
            continue
        if line["type"] == "underglass_vllm":
            line["tokens"] = False
        if line["type"] == "arrived":
            line["prompt"] = len(line["prompt"])
        if line["type"] == "done":
            line["gains"] = [[request, len(ids), *more] for request, ids, *more in line["gains"]]
        kept.append(json.dumps(line))
    log = read_source("\n".join(kept).encode())
    assert isinstance(log, EventLog)
    return log


def test_hashes_and_tokens_give_the_same_reasons_for_a_miss() -> None:
    name = "vllm_shared_prefix.jsonl.gz"
    by_tokens, by_hash = read_source(RECORDINGS / name), without_tokens(name)
    assert {row.id for row in by_hash.token_rows} == {None}
    for request in by_tokens.request_rows:
        one, other = by_tokens.why_missed(request.label), by_hash.why_missed(request.label)
        assert (one.length, one.found, one.evicted) == (other.length, other.found, other.evicted)
    gus = by_hash.why_missed("Gus")
    assert (gus.kind, gus.found, by_hash.request(gus.needed_by).label) == ("evicted", 32, "Dev")
