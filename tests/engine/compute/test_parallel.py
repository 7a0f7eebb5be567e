"""One model on several devices: the tokens and the log of one, bytes by the formula, no survivors."""

import io
import os
import signal
import subprocess
import sys
from itertools import pairwise

import msgspec
import psutil
import pytest
import torch

from engine import Engine, EngineConfig, SamplingParams
from engine.core.config import ConfigError
from engine.core.log import vocabulary as v
from engine.extensions.adapters import AdapterError
from engine.models.decoder import Decoder
from engine.models.loader import open_model
from engine.parallel import Parallel
from engine.parallel.devices import DeviceError, Devices
from engine.parallel.shards import Shard, ShardedCheckpoint, check_division
from tests.facts import raises_naming

DIVISIONS = {
    "tensor": Parallel(tensor=2),
    "pipeline": Parallel(pipeline=2),
    "expert": Parallel(tensor=2, expert=True, all_to_all=True),
}
CONFIG = EngineConfig(block_size=8, max_kv_tokens=768, max_batch_size=6, token_budget=48)


@pytest.fixture(scope="module", params=DIVISIONS)
def pair(request, a_model):
    """(division, an engine in one process, one on two devices)"""
    model = a_model("qwen3-moe")[0] if request.param == "expert" else "bundled"
    division = DIVISIONS[request.param]
    engine = Engine.load(model, CONFIG, parallel=division)
    yield division, Engine.load(model, CONFIG), engine
    engine.runner.close()


def again(engine, **settings):
    """A new engine on the same model."""
    config = msgspec.structs.replace(CONFIG, **settings)
    return Engine(engine.runner, config, tokenizer=engine.tokenizer)


def submit_forty(engine):
    """Long and short prompts with common beginnings, greedy and sampled, some with two samples."""
    size = min(engine.runner.vocab_size, 90)
    for i in range(40):
        prompt = [(i % 4 * 11 + at * (1 + at // 20 * i)) % size for at in range(5 + i * 7 % 60)]
        params = SamplingParams(
            max_tokens=3 + i % 9,
            temperature=0.0 if i % 3 else 0.8,
            seed=i,
            n=1 + (i % 8 == 3),
            prompt_logprobs=0 if i % 5 == 1 else None,
            ignore_eos=True,
        )
        engine.submit(prompt, params)


def played(engine, submit):
    submit(engine)
    while engine.has_work():
        engine.step()
    return engine.log


def decisions(log):
    """Every event but the first, without what was measured."""
    return [_plain(event) for event in [*log][1:]]


def _plain(event):
    return {name: getattr(event, name) for name in event.__struct_fields__ if name != "t"}


@pytest.mark.parametrize("is_async", [False, True])
def test_forty_prompts_have_the_log_of_one_process(pair, is_async):
    """Tokens, schedule, preemptions and expert loads."""
    _, one, divided = pair
    logs = [
        played(again(engine, async_scheduling=is_async), submit_forty) for engine in (one, divided)
    ]
    assert decisions(logs[0]) == decisions(logs[1])
    scores = [
        [row for event in log if isinstance(event, v.StepFinished) for row in event.t["logprobs"]]
        for log in logs
    ]
    for ours, theirs in zip(*scores, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-3)
    # Each step with rows has the lanes of its own pass.
    steps = [event for event in logs[1] if isinstance(event, v.StepFinished)]
    for event in steps:
        t = event.t
        end = t.get("ready", t["end"]) - t.get("launched", t["scheduled"])
        for lane in t["devices"]:
            assert lane[0].start >= 0
            assert lane[-1].end <= end + 1
            assert all(one.end == two.start for one, two in pairwise(lane))


def test_pages_can_be_read_and_written(pair):
    *_, divided = pair
    engine = again(divided)
    played(engine, lambda one: one.submit([5] * 40, SamplingParams(max_tokens=1)))
    runner = engine.runner
    pages, size = runner.read_pages([3, 0, 2]), runner.kv_format().page_bytes
    assert len(pages) == 3 * size
    runner.write_pages([7, 8, 9], memoryview(pages))
    assert runner.read_pages([8, 9]) == pages[size:]
    runner.run([], [(7, 10)])
    assert runner.read_pages([10]) == runner.read_pages([3])
    with raises_naming(AdapterError, "parallel"):
        engine.adapters.add("ada", "/adapters/ada")


def test_a_device_that_ends_or_hangs_is_named_and_takes_the_others_along(pair):
    """This is the last test of each pair of engines."""
    division, _, divided = pair
    engine = again(divided)
    devices = engine.runner._model.devices
    victim = devices.processes[1]
    hangs = division.pipeline > 1
    if hangs:
        devices._timeout_s = 0.5
    os.kill(victim.pid, signal.SIGSTOP if hangs else signal.SIGKILL)
    request = engine.submit([1, 2, 3], SamplingParams(max_tokens=2))
    engine.step()
    assert request.finish_reason == "error"
    for fact in ("device ", f"process {victim.pid}" if not hangs else "0.5 s", " of 2"):
        assert fact in request.error
    assert all(process.returncode is not None for process in devices.processes)
    later = engine.submit([1, 2, 3], SamplingParams(max_tokens=2))
    engine.step()
    assert "load the engine again" in later.error


def test_a_device_that_fails_because_another_has_ended_is_not_blamed():
    """Its error may be read before the end of the other is noticed."""
    devices = Devices(Parallel(tensor=2))
    victim = devices.processes[1]
    streams = [process.stdin for process in devices.processes]
    for process in devices.processes:
        process.stdin = io.BytesIO()  # no command arrives
    devices._answers.put((0, ("connection closed by peer", None)))
    victim.kill()
    with pytest.raises(DeviceError, match=rf"device 1 of 2 \(process {victim.pid}\) has ended"):
        devices.call_all("run")
    for stream in streams:
        stream.close()


def test_no_process_outlives_a_killed_engine():
    code = (
        "import sys; from engine.parallel import Parallel; from engine.parallel.devices import *\n"
        "devices = Devices(Parallel(tensor=2))\n"
        "print(*[one.pid for one in devices.processes], flush=True)\n"
        "sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as parent:
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 2
    psutil.wait_procs(workers, timeout=60)
    assert not any(one.is_running() and one.status() != "zombie" for one in workers)


FAMILIES = ["qwen3", "qwen3-moe", "gpt-oss", "phi3", "llama-biases", "llama-mha-tied"]


@pytest.mark.parametrize("tensor", [2, 6])
@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_the_parts_of_a_layer_add_up_to_the_whole(a_model, name, tensor):
    """Two KV heads on six devices are copied; inner sizes need not be divisible."""
    directory, _ = a_model(name)
    found = open_model(directory, "float32", "cpu")
    parallel = Parallel(tensor=tensor, expert=name == "qwen3-moe")
    config = check_division(parallel, found.config, found.weights)

    def attend(_layer, queries, keys_values, *sinks):
        keys, values = keys_values.chunk(2, dim=1)
        shared = (keys * 2 + values).repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        return (queries + shared + sum(one[:, None] for one in sinks)).flatten(1)

    def results(decoder):
        x = torch.randn(5, config.hidden_size, generator=torch.manual_seed(1))
        decoder.prepare(8)
        tables = [table[:5, :, None].unbind(dim=1) for table in decoder._tables]
        for layer in decoder._layers:
            yield layer.attention(x, tables, attend)
            yield layer.feed_forward(x)

    whole = list(results(Decoder(config, found.weights)))
    shards = [Shard(parallel, config, part) for part in range(tensor)]
    decoders = [
        Decoder(shard.local, ShardedCheckpoint(directory, torch.float32, shard)) for shard in shards
    ]
    for parts, expected in zip(zip(*map(results, decoders), strict=True), whole, strict=True):
        torch.testing.assert_close(sum(parts), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    ("model", "division", "facts"),
    [
        ("bundled", {"tensor": 4}, ("tensor = 4", "num_heads", "6")),
        ("bundled", {"pipeline": 7}, ("pipeline = 7", "6")),
        ("bundled", {"tensor": 2, "expert": True}, ("expert", "Qwen3ForCausalLM")),
        ("gpt2", {"tensor": 2}, ("GPT2LMHeadModel",)),
    ],
)
def test_a_division_that_does_not_fit_is_rejected(a_model, model, division, facts):
    directory = model if model == "bundled" else a_model(model)[0]
    with raises_naming(ConfigError, *facts):
        Engine.load(directory, parallel=Parallel(**division))


@pytest.mark.parametrize(
    "wrong", [{"tensor": 0}, {"microbatches": 0}, {"expert": True}, {"all_to_all": True}]
)
def test_sizes_are_checked(wrong):
    with raises_naming(ConfigError, *wrong):
        Parallel(**wrong)
