"""The engine beside a whole vLLM on a CPU: the bundled model, the same prompts, greedy.

`recorders/fixtures/record_examples.py` says how to record it again.
"""

import pytest

from engine.core.engine import Engine
from engine.core.log.vocabulary import RequestArrived, StepFinished, StepStarted
from parity.records import Ask, Recording, Workload
from parity.replay import Player, vllm_config
from tests.parity.comparing import compare_steps
from tests.parity.recorded_steps import read_recording, steps_of
from tests.recorders.scenarios import RECORDINGS


@pytest.mark.parametrize("name", ["calm", "tight", "shared_prefix"])
def test_decisions_and_tokens_are_those_of_a_whole_vllm(name: str) -> None:
    log = read_recording(RECORDINGS / f"vllm_{name}.jsonl.gz")
    asks, step = dict[int, Ask](), 0
    for event in log:
        match event:
            case StepStarted():
                step = event.step
            case RequestArrived():
                asks[event.request] = Ask(step + 1, event.prompt, [], event.max_tokens)
            case StepFinished():
                for row in event.tokens:
                    asks[row.request].output += row.ids
    names = ("token_budget", "max_batch_size", "num_blocks", "block_size")
    settings = {key: log[0].settings[key] for key in names}
    workload = Workload(name, "bundled model", requests=list(asks.values()), **settings)
    player = Player(workload, Engine.load("bundled", vllm_config(workload)))
    assert compare_steps(Recording(workload, steps_of(log)), player.play()).kind == ""
    assert player.outputs == [ask.output for ask in workload.requests]
