"""With the learner's attention and probabilities, a model writes the same text."""

from functools import cache
from typing import Any

from checks.broken import Broken
from checks.lesson_01 import YourDistribution
from engine import Engine, SamplingParams
from project.gates.gate import Gate
from project.learner import Source

PROMPTS = [
    f"{beginning} {animal}"
    for beginning in ("Once upon a time there was a", "The old", "One day a", "Tell me about the")
    for animal in ("fox", "owl", "bear", "cat", "gull")
]
# Every second request samples among its one likeliest token, so that the probabilities count as well.
GREEDY = SamplingParams(max_tokens=12, temperature=0)
LIKELIEST = SamplingParams(max_tokens=12, temperature=1, top_k=1)


def attempt(source: Source) -> None:
    """Compare the texts of 20 prompts."""
    from checks.attending import YourAttention  # it imports torch, which other gates do not need

    mine = source.load()
    parts: dict[str, Any] = {}
    if (attend := mine.guarded("attend")) is not None:
        parts["attention"] = type("Yours", (YourAttention,), {"attend": staticmethod(attend)})
    if (distribution := mine.guarded("distribution")) is not None:
        parts["logits_to_probs"] = YourDistribution(distribution)
    engine = Engine.load("bundled", **parts)
    params = [GREEDY, LIKELIEST] * (len(PROMPTS) // 2)
    answers = engine.complete(PROMPTS, params, progress=False)
    for prompt, answer, right in zip(PROMPTS, answers, _right(), strict=True):
        if answer.finish_reason == "error":
            raise Broken(
                f"The step failed: {answer.error}", "20 prompts are answered", "Look there."
            )
        if answer.text != right:
            raise Broken(
                f"After {prompt!r} your engine wrote {answer.text!r}.",
                "greedy text is that of the engine's own parts",
                f"The engine's own parts write {right!r}.",
            )


@cache
def _right() -> list[str]:
    answers = Engine.load("bundled").complete(PROMPTS, GREEDY, progress=False)
    return [answer.text for answer in answers]


GATE = Gate(
    "tokens", "greedy text on 20 prompts", exact=("distribution", "attend"), attempt=attempt
)
