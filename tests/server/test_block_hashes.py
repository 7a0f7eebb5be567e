"""Block hashes with adapters and salts equal those of a real vLLM (`recorders/fixtures`)."""

import json
from pathlib import Path

import pytest

from engine.extensions.prefix_keys import extra_keys
from server.core.kv_events import block_digest, seed

CASES = json.loads((Path(__file__).parents[1] / "fixtures/parity/block_hashes.json").read_text())


def test_block_hashes_with_adapters_and_salts_are_vllms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    for case in CASES:
        parent, hashes = seed(), []
        for block, keys in enumerate(extra_keys(2, case["name"], case["path"], case["salt"])):
            parent = block_digest(parent, case["tokens"][16 * block : 16 * block + 16], keys)
            hashes.append(parent.hex())
        assert hashes == case["hashes"]
    assert len({one for case in CASES for one in case["hashes"]}) == 2 * len(CASES)
