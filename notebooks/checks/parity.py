"""What vLLM's own scheduler decided on random workloads, beside our engine with any settings.

The recording is that of the tests: `recorders/fixtures/record_vllm.py` made it with vLLM 0.32.
"""

from itertools import islice
from typing import Any

import msgspec

from parity.records import DECISIONS_OF_VLLM, Recording, read
from parity.replay import replay, vllm_config


def decided_by_vllm(kind: str, most: int = 300) -> list[Recording]:
    """Return recorded workloads of a kind: "random"; or "serving", whose prompts begin alike."""
    recorded = read(DECISIONS_OF_VLLM)
    return list(islice((one for one in recorded if one.workload.stratum == kind), most))


def equal(recorded: list[Recording], **settings: Any) -> int:
    """Count the workloads in which our engine decides each step as vLLM did.

    settings  fields of EngineConfig that replace those of `EngineConfig.like("vllm")`. A workload
              without a prefix cache stays without one
    """
    count = 0
    for one in recorded:
        config, changes = vllm_config(one.workload), dict(settings)
        if config.prefix_cache == "off":
            changes.pop("prefix_cache", None)
        steps = replay(one.workload, msgspec.structs.replace(config, **changes), like=one.steps)
        count += [step.decisions for step in steps] == [step.decisions for step in one.steps]
    return count
