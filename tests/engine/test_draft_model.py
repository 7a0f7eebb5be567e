"""A draft model: its KV follows the target's, its drafts change no token, and it fits its target.

Random workloads have draft models, too, whose runner checks every read (`test_random_workloads.py`).
"""

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from engine import ConfigError, Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.compute.torch_runner import TorchRunner
from engine.core.log import vocabulary as v
from engine.extensions.draft_model import DraftModel
from engine.models.loader import BUNDLED
from engine.models.weights.checkpoint import CheckpointError
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.compute.parity import ROWS, make_prompts
from tests.engine.drafters import drafted
from tests.engine.workloads import Workload, finish, make_engine, next_token
from tests.facts import assert_names, raises_naming
from visualizer import read

TOKENIZER = ByteTokenizer()
ROOMY = dict(token_budget=64, max_batch_size=4, max_kv_tokens=1024, block_size=4)
TIGHT = ROOMY | dict(max_kv_tokens=100)
GREEDY = SamplingParams(max_tokens=14, ignore_eos=True)
WARM = SamplingParams(max_tokens=14, ignore_eos=True, temperature=0.9, seed=3)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A function: name -> a new TorchRunner with that model."""
    torch.set_num_threads(1)
    kept = {}

    def runner(name):
        if name not in kept:
            kept[name] = ROWS[name](tmp_path_factory.mktemp("model")).runner
        return TorchRunner(kept[name]._model)

    return runner


def serve(target, draft, params, settings=ROOMY, length=4):
    """Serve four prompts, then again from the cache; return the engine and all outputs."""
    drafter = None if draft is None else DraftModel(draft, length)
    engine = Engine(target, EngineConfig(**settings), tokenizer=TOKENIZER, drafter=drafter)
    prompts = make_prompts(4, 97)
    outputs = [
        [one.token_ids for one in engine.complete(prompts, params, progress=False)]
        for _ in range(2)
    ]
    return engine, outputs


SITUATIONS = {
    "roomy": ROOMY,
    "preempting": TIGHT,
    "chunked": ROOMY | dict(token_budget=11),
    "hash": TIGHT | dict(prefix_cache="hash"),
}


@pytest.mark.parametrize("params", [GREEDY, WARM], ids=["greedy", "sampled"])
@pytest.mark.parametrize("settings", SITUATIONS.values(), ids=SITUATIONS)
def test_a_draft_model_with_the_target_s_weights_is_always_right(models, settings, params):
    """Wrong KV in one slot, or another random number, would make another draft."""
    engine, outputs = serve(models("qwen3"), models("qwen3"), params, settings)
    proposed, accepted = drafted(engine.log)
    assert proposed == accepted > 60
    assert outputs == serve(models("qwen3"), None, params, settings)[1]
    preempted = bool(engine.log.of(v.Preempted))
    assert preempted == (settings["max_kv_tokens"] == TIGHT["max_kv_tokens"])
    assert any(event.blocks for event in engine.log.of(v.Admitted)), "no prefix was cached"


@pytest.mark.parametrize(
    ("draft", "params"),
    [("mistral", GREEDY), ("gpt2", WARM), ("gpt2", replace(WARM, n=2))],
    ids=["greedy", "sampled", "samples"],
)
def test_another_draft_model_changes_no_token(models, draft, params):
    engine, outputs = serve(models("qwen3"), models(draft), params)
    assert outputs == serve(models("qwen3"), None, params)[1]
    proposed, accepted = drafted(engine.log)
    assert proposed > accepted


def test_the_log_has_the_text_of_each_rejected_draft(models):
    engine, _ = serve(models("qwen3"), models("gpt2"), GREEDY)
    drafts = {
        (step, row.request): row.drafts
        for step, event in enumerate(engine.log.of(v.StepScheduled), 1)
        for row in event.rows
    }
    texts = []
    assert engine.log[0].classes["drafter"] == "DraftModel"
    architecture = engine.log[0].model["draft_model"]["architecture"]
    assert architecture == models("gpt2").describe()["architecture"]
    for event in engine.log.of(v.StepFinished):
        assert 0 < event.t["draft_us"] <= event.t["end"] - event.t["scheduled"]
        expected = [drafts[event.step, row.request][row.accepted :] for row in event.tokens]
        if any(drafts[event.step, row.request] for row in event.tokens):
            texts += [text for row in event.t["rejected"] for text in row]
            assert event.t["rejected"] == [[TOKENIZER.decode([i]) for i in r] for r in expected]
        else:
            assert "rejected" not in event.t
    assert texts


def test_a_text_beyond_the_draft_model_s_context_goes_on_without_drafts(models):
    draft = models("qwen3")
    draft.max_context = 40
    engine, outputs = serve(models("qwen3"), draft, GREEDY, ROOMY | dict(token_budget=11))
    assert outputs == serve(models("qwen3"), None, GREEDY)[1]
    rows = [row for event in engine.log.of(v.StepScheduled) for row in event.rows]
    # The last position that is read has the number 39, and the draft after it the number 40.
    assert max(row.start + row.count for row in rows if row.drafts) == 41
    assert max(row.start + row.count for row in rows) > 45


def test_a_block_that_could_not_be_copied_is_computed_again():
    class FailsToCopy(CheckingRunner):
        def run(self, rows, copies):
            if copies:
                raise OSError("no copy")
            return super().run(rows, copies)

    drafter = DraftModel(FailsToCopy(next_token))
    engine = Engine(CheckingRunner(next_token), EngineConfig(**ROOMY), drafter=drafter)
    engine.submit([97, 98], replace(WARM, n=2))
    finish(engine)
    [error] = [event.draft_error for event in engine.log.of(v.StepFinished) if event.draft_error]
    assert_names(error, "OSError", "no copy")
    assert drafted(engine.log)[1] > 5


def test_three_failures_in_a_row_switch_drafting_off():
    """After a single failure the KV is computed later, as random workloads check."""
    workload = Workload(
        EngineConfig(), [], draft_length=4, draft_model=True, draft_failures=set(range(1, 1000))
    )
    engine = make_engine(workload)
    engine.submit([97, 98], GREEDY)
    finish(engine)
    steps = engine.log.of(v.StepFinished)
    first, _, last = [event.draft_error for event in steps if event.draft_error]
    for said in (first, read(engine.log).why(1, 1)):
        assert_names(said, "RuntimeError", "told to fail")
    assert_names(last, "off", 3)
    assert "off" not in first
    assert engine.drafter.is_off and drafted(engine.log) == (0, 0)
    assert engine.drafter.runner.passes == 3
    assert not any("draft_us" in event.t for event in steps[3:])


def test_a_draft_model_must_have_the_target_s_vocabulary(tmp_path: Path):
    for file in BUNDLED.glob("*.json*"):
        text = file.read_text(encoding="utf-8")
        if file.name == "tokenizer.json":
            text = text.replace("<|output_end|>", "<|the_end|>")
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    (tmp_path / "model.safetensors").symlink_to(BUNDLED / "model.safetensors")
    with raises_naming(CheckpointError, "vocabulary", "bundled", tmp_path.name, "the_end"):
        Engine.load("bundled", draft_model=tmp_path)


def test_a_draft_model_is_the_only_drafter(models):
    with raises_naming(ConfigError, "draft_model", "drafter"):
        Engine.load("bundled", draft_model="bundled", drafter=DraftModel(models("gpt2")))
    for length in (0, -1, True, 2.5):
        with raises_naming(ConfigError, "draft_length", length):
            DraftModel(models("gpt2"), length)
    with raises_naming(ConfigError, "async_scheduling", "DraftModel"):
        Engine.load("bundled", EngineConfig(async_scheduling=True), draft_model="bundled")
