"""Block hashes with adapters and salts equal those of a real vLLM (`recorders/fixtures`)."""

import json
from pathlib import Path

import pytest

from engine.core.log.vocabulary import AdapterChanged, RadixInserted, RequestArrived, RunStarted
from engine.extensions.prefix_keys import extra_keys, salt_digest
from server.core.kv_events import BlockStored, KVEvents, block_digest, seed, wire_hash

CASES = json.loads((Path(__file__).parents[1] / "fixtures/parity/block_hashes.json").read_text())


def test_block_hashes_with_adapters_and_salts_are_vllms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    for case in CASES:
        parent, hashes = seed(), []
        name, salt = case["name"], case["salt"]
        for block, keys in enumerate(extra_keys(2, name, case["path"], salt)):
            parent = block_digest(parent, case["tokens"][16 * block : 16 * block + 16], keys)
            hashes.append(parent.hex())
        assert hashes == case["hashes"]
        stored = published(name, case["path"], salt, case["tokens"])
        assert stored.block_hashes == [wire_hash(bytes.fromhex(one)) for one in hashes]
        assert stored.lora_name == (name or None)
        first, second = (tuple(one for one in keys if one) for keys in ((name, salt), (name,)))
        assert stored.extra_keys == [first or None, second or None]
    assert len({one for case in CASES for one in case["hashes"]}) == 2 * len(CASES)


def published(key: str, path: str, salt: str, tokens: list[int], *others: str) -> BlockStored:
    """What is published of a prompt; weights with the keys `others` were read from its path before."""
    events = KVEvents(salts={salt_digest(salt): salt})
    events.apply(RunStarted(2, {"block_size": 16}, {}, {}, {}, "wall"))
    for one in (*others, key):
        events.apply(AdapterChanged(0, one, "", 1, path, 8, 1))
    events.apply(RequestArrived(1, tokens, [], "", 1, 1, 0, {}, extra_key=[key, salt_digest(salt)]))
    stored = events.apply(RadixInserted(1, 1, 0, [0, 1]))
    assert isinstance(stored, BlockStored)
    return stored


def test_new_weights_have_their_own_hashes_and_the_same_name() -> None:
    tokens = list(range(40))
    first, moved = (published(key, path, "", tokens) for key, path in (("a", "/a"), ("a@2", "/b")))
    again = published("a@2", "/a", "", tokens, "a")
    assert first.lora_name == moved.lora_name == again.lora_name == "a"
    assert moved == published("a", "/b", "", tokens), "as vLLM hashes it"
    hashes = [one.block_hashes[0] for one in (first, moved, again)]
    assert len(set(hashes)) == 3
