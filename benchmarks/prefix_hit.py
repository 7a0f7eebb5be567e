"""The savings of a prefix hit: the time to first token of a cached prompt compared with a cold one.

Each pair is one new prompt of 1,000 tokens, sent twice: first cold, then
when its blocks are in the radix tree. All but the last, partly filled block hit. The prompts are
made of the bundled model's own kind of stories. The share of time is the median of the pairs' own.
"""

import statistics

from benchmarks.pairs import Ratio
from benchmarks.report import bars, panels, save
from benchmarks.workload import story_prompts
from engine import Engine, EngineConfig, SamplingParams
from engine.models import loader
from visualizer import read

PROMPT = 1000
PAIRS = 30
BUDGETS = (256, 1024)  # the prompt in four chunks, and whole


def main() -> None:
    """Print TTFT cold and cached, and the ratio, for a prompt in chunks and whole."""
    plot, columns = panels([f"TTFT, ms, token budget {budget}" for budget in BUDGETS], "")
    figures: dict[str, object] = {"prompt_tokens": PROMPT}
    for axes, budget in zip(columns, BUDGETS, strict=True):
        config = EngineConfig(token_budget=budget, max_kv_tokens=8192)
        runner, tokenizer = loader.load("bundled")
        engine = Engine(runner, config, tokenizer=tokenizer)
        for prompt in story_prompts(tokenizer, PAIRS + 1, PROMPT):
            for _ in ("cold", "cached"):
                engine.submit(prompt, SamplingParams(max_tokens=1))
                while engine.has_work():
                    engine.step()
        frame = read(engine.log).requests.iloc[2:]  # the first pair warms up
        cold, cached = frame.iloc[0::2], frame.iloc[1::2]
        assert (cold.cached_tokens < config.block_size).all()
        shares = Ratio([b / a for a, b in zip(cold.ttft_ms, cached.ttft_ms, strict=True)])
        hit = int(cached.cached_tokens.iloc[0])
        ttft = {
            "cached": statistics.median(cached.ttft_ms),
            "cold": statistics.median(cold.ttft_ms),
        }
        figures[f"budget {budget}"] = shares.figures() | {"ttft_ms": ttft, "cached_tokens": hit}
        bars(axes, ttft, digits=1)
        print(
            f"token budget {budget}: cold {ttft['cold']:.1f} ms, cached {ttft['cached']:.1f} ms "
            f"({hit} of {PROMPT} tokens hit); cached over cold {shares}"
        )
    save("prefix_hit", figures, plot)


if __name__ == "__main__":
    main()
