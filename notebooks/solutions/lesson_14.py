"""Lesson 14: the acceptance rule of speculative decoding (arXiv:2211.17192)."""

from engine.core.speculation.verification import Pick


def accept(
    p: list[list[float]],
    q: list[list[float]],
    drafts: list[int],
    uniforms: list[float],
    pick: Pick,
) -> list[int]:
    """Return the kept drafts, and one token more."""
    kept: list[int] = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            left = [max(0.0, mine - its) for mine, its in zip(model, drafter, strict=True)]
            return [*kept, pick(left)]
        kept.append(draft)
    return [*kept, pick(p[-1])]
