"""Compare two systems' tokens, and the logits where they differ."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

TIE = 1e-4  # logits closer than this may come out either way when sums are ordered differently


@dataclass
class Agreement:
    """The number of equal outputs of `count`; `gaps` is the judge's difference of the two logits at
    the first token that differs, for each of the others."""

    count: int
    gaps: list[float] = field(default_factory=list)

    @property
    def ties(self) -> int:
        """Outputs that differ at a position where either token is right."""
        return sum(gap < TIE for gap in self.gaps)

    def require(self, name: str) -> "Agreement":
        """Raise unless every difference is a tie."""
        if self.ties < len(self.gaps):
            raise AssertionError(f"{name}: other tokens than the engine; logits apart {self.gaps}")
        return self

    def figures(self) -> dict[str, object]:
        """Return the numbers for `report.save`."""
        return {"outputs": self.count, "equal": self.count - len(self.gaps), "gaps": self.gaps}

    def __str__(self) -> str:
        if not self.gaps:
            return f"all {self.count} outputs equal"
        return (
            f"{self.count - len(self.gaps)} of {self.count} outputs equal, {self.ties} part at a tie, "
            f"largest gap between the two tokens' logits {max(self.gaps):.5f}"
        )


@torch.inference_mode()
def agreement(
    judge: PreTrainedModel,
    prompts: Sequence[list[int]],
    ours: Sequence[list[int]],
    others: Sequence[list[int]],
) -> Agreement:
    """Compare outputs, prompt by prompt, up to the first token that differs."""
    found = Agreement(len(prompts))
    for prompt, one, other in zip(prompts, ours, others, strict=True):
        assert len(one) == len(other), f"{len(one)} and {len(other)} tokens"
        if one != other:
            at = next(
                i for i, pair in enumerate(zip(one, other, strict=True)) if len(set(pair)) > 1
            )
            logits = judge(torch.tensor([prompt + one[:at]])).logits[0, -1]
            found.gaps.append(abs(float(logits[one[at]] - logits[other[at]])))
    return found
