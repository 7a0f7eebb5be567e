"""Prompt lookup: steps and speed with drafts from the text itself and without them.

It is made for copying: the user dictates names and the model repeats them. A story hardly
repeats itself; there drafts must not cost much. The tokens are always the same with and without.
"""

from random import Random

from benchmarks.pairs import compare
from benchmarks.report import MUTED, bars, panels, save
from benchmarks.workload import story_prompts
from engine import Engine, EngineConfig, SamplingParams
from engine.extensions.prompt_lookup import PromptLookup
from engine.models import loader
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.training import words

REQUESTS = 16
DRAFTER = PromptLookup()  # its defaults: 4 tokens drafted, 4 down to 2 tokens matched
PAIRS = 15

Served = tuple[int, list[list[int]]]  # steps, output tokens of each request


def main() -> None:
    """Print steps per token and the ratio of speeds, one request at a time and eight."""
    widest = EngineConfig(token_budget=256, max_batch_size=8, max_kv_tokens=8 * 256)
    runner, tokenizer = loader.load("bundled")
    texts = {
        "copying": (_dictations(tokenizer), SamplingParams(max_tokens=64)),
        "story": (
            story_prompts(tokenizer, REQUESTS, 64),
            SamplingParams(max_tokens=64, ignore_eos=True),
        ),
    }
    print(
        f"{REQUESTS} requests, greedy, fp32, 1 thread; drafts of at most {DRAFTER.length} tokens, "
        f"{DRAFTER.longest} to {DRAFTER.shortest} matching tokens; step budget {widest.token_budget}"
    )
    figures: dict[str, object] = {}
    steps: dict[str, float] = {}
    speeds: dict[str, float] = {}
    for text, (prompts, params) in texts.items():
        for batch in (1, 8):
            config = EngineConfig(
                token_budget=256, max_batch_size=batch, max_kv_tokens=widest.max_kv_tokens
            )

            def serve(drafter: PromptLookup | None, config: EngineConfig = config) -> Served:
                engine = Engine(runner, config, tokenizer=tokenizer, drafter=drafter)
                done = engine.complete(prompts, params, progress=False)  # noqa: B023
                return engine.step_count, [one.token_ids for one in done]

            (drafted, same), (plain, tokens) = serve(DRAFTER), serve(None)
            assert same == tokens, "drafts changed a token"
            count = sum(map(len, tokens))
            name = f"{text}, batch {batch}"
            ratio = compare(name, lambda: serve(DRAFTER), lambda: serve(None), PAIRS)
            steps[name], speeds[name] = drafted / plain, ratio.quartiles[1]
            figures[name] = {
                "tokens": count,
                "steps_per_token": [drafted / count, plain / count],
                "throughput_with_over_without": ratio.figures(),
            }
            print(
                f"{name}: {count} tokens, all equal; {drafted / count:.3f} steps per token with "
                f"drafts, {plain / count:.3f} without; throughput with over without {ratio}",
                flush=True,
            )
    plot, columns = panels(
        ["Steps, with drafts over without", "Tokens/s, with drafts over without"], ""
    )
    for axes, values in zip(columns, (steps, speeds), strict=True):
        bars(axes, values, digits=2, ours=len(values))
        axes.axvline(1, color=MUTED, linewidth=1, zorder=0)
    save("speculation", figures, plot)


def _dictations(tokenizer: HFTokenizer) -> list[list[int]]:
    """Chats in which the user asks for twelve names to be repeated."""
    rng = Random(0)
    asked = ["Repeat: " + " ".join(rng.sample(words.NAMES, 12)) for _ in range(REQUESTS)]
    template = tokenizer.chat_template
    assert template is not None
    return [
        tokenizer.encode(template.render([{"role": "user", "content": text}])) for text in asked
    ]
