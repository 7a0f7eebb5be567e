"""What `test_in_pyodide.py` runs in both Pythons: prints results of the bundled model as JSON."""

import json

from engine import ConfigError, Engine, EngineConfig, SamplingParams

STORY = "Once upon a time, a fox called Theo lived near a quiet river. One day"
engine = Engine.load("bundled", EngineConfig(token_budget=16, max_batch_size=8))
asked = [
    SamplingParams(max_tokens=12, logprobs=2, prompt_logprobs=1),
    SamplingParams(max_tokens=12, temperature=0.8, seed=59, n=3),
    SamplingParams(max_tokens=12, temperature=1, top_p=0.8, seed=1, repetition_penalty=1.2),
]
first = engine.submit(STORY, asked[0])
for params in asked[1:]:
    engine.submit(STORY, params)
done = []
while engine.has_work():
    done += engine.step().finished
done.sort(key=lambda request: request.id)

page = engine.runner.read_pages([0])
engine.runner.write_pages([9], memoryview(page))
engine.runner.run([], [(9, 10)])
is_copied = engine.runner.read_pages([10]) == page
try:
    Engine.load("bundled", EngineConfig(), device="abacus")
    refused = ""
except ConfigError as error:
    refused = str(error)

print(
    json.dumps(
        {
            "tokens": [request.tokens for request in done],
            "logprobs": [request.logprobs for request in done],
            "top": [dict(top) for top in first.top_logprobs],
            "scores": [score.logprob for score in first.prompt_scores],
            "is_copied": is_copied,
            "refused": refused.partition(" ")[0],
            "model": engine.runner.describe(),
        }
    )
)
