"""How many tokens each expert of a mixture computed, in the log's compact form.

A model of 48 layers with 128 experts has 6,144 loads per step. In a step with one token, 8 of 128 are
not 0; in a long prefill nearly all are. So a layer is the list of its loads in which -n stands for n
idle experts in a row: [0, 0, 3, 0, 1] is written as [-2, 3, -1, 1]. It is never longer than the list of
all loads, and with one token about as short as pairs of expert and load.

Real engines keep the same counts to balance experts between devices: vLLM's `expert_load_pass`
(`vllm/distributed/eplb/eplb_state.py`), SGLang's `python/sglang/srt/eplb/expert_distribution.py`.

Differs from vLLM: vLLM keeps only the sums over recent passes. Differs from SGLang: in SGLang, the
recorder's mode says whether it keeps sums (`stat`) or single passes (`per_pass`). Here the log has the
counts of each step.
"""

from collections.abc import Sequence

MOST_EXPERTS = 65_536  # a damaged number would fill the memory


def packed(loads: Sequence[int]) -> list[int]:
    """Return the loads of a layer with each run of n zeros as -n."""
    layer: list[int] = []
    for load in loads:
        if load == 0 and layer and layer[-1] < 0:
            layer[-1] -= 1
        else:
            layer.append(load or -1)
    return layer


def unpacked(layer: Sequence[int]) -> list[int]:
    """Return one load per expert; undoes `packed`. A 0 is one idle expert.

    Raises ValueError for more than MOST_EXPERTS.
    """
    if sum(max(1, -load) for load in layer) > MOST_EXPERTS:
        raise ValueError(f"a layer has at most {MOST_EXPERTS} experts")
    return [one for load in layer for one in ([load] if load > 0 else [0] * (-load or 1))]


def summed(loads: list[list[int]], layers: Sequence[Sequence[int]]) -> list[list[int]]:
    """Add the packed loads of a step to those of all steps before, of which there may be none.

    Raises ValueError if the numbers of layers or experts differ.
    """
    step = [unpacked(layer) for layer in layers]
    if not loads:
        return step
    return [
        [before + load for before, load in zip(*both, strict=True)]
        for both in zip(loads, step, strict=True)
    ]
