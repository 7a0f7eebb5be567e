"""The host tier stores, evicts and finds the blocks that vLLM's offloading manager does.

`offloading.py` recorded what vLLM 0.32 answers. Two answers are compared as sets, because nothing
depends on their order: which blocks leave at once, and which are new.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

from tests.parity.offloading import operations

RECORDED = Path(__file__).parents[1] / "fixtures" / "parity" / "vllm_offloading.json.gz"


def test_the_host_tier_decides_as_vllm_does(soak: bool) -> None:
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    seeds = list(recorded) if soak else list(recorded)[:40]
    compared = Counter[str]()
    for seed in seeds:
        played = operations(int(seed))
        assert played is not None
        _, asked = played
        assert len(asked) == len(recorded[seed])
        for ours, theirs in zip(asked, recorded[seed], strict=True):
            if ours[0] == "store":
                ours[4:], theirs[4:] = map(set, ours[4:]), map(set, theirs[4:])
                compared["stored"] += len(ours[4])
                compared["evicted"] += len(ours[5])
            elif ours[0] == "find":
                compared["found"] += ours[4]
            assert ours == theirs, f"seed {seed}"
    print(f"\n{len(seeds)} workloads: {dict(compared)} blocks, all as vLLM")
    assert min(compared.values()) > 50
