"""An error of the recorder ends the recording, never the engine. vLLM's classes are stand-ins here."""

import importlib.util
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from visualizer.sources import read_source

MODULE = Path(__file__).parents[2] / "recorders" / "vllm" / "underglass_vllm.py"
READ_BY_VLLM = json.loads(
    MODULE.parents[2].joinpath("tests/fixtures/vllm/settings_read.json").read_text()
)


class FullAttentionSpec:
    block_size = 16


def settings(**fields: Any) -> Any:
    """A configuration of a release that has one field more, which is not at its default."""
    fields |= {"of_a_later_release": 7}
    kind = make_dataclass("SchedulerConfig", [(name, Any, None) for name in fields])
    return kind(**fields)


class StandIn:
    """As much of vLLM's scheduler as a recorder touches while requests arrive."""

    block_size = 16

    def __init__(self) -> None:
        of = SimpleNamespace

        def nothing(*_args: Any, **_kwargs: Any) -> None: ...

        parallel = of(data_parallel_size=1, data_parallel_rank=0)
        model = of(model="tiny", tokenizer="tiny")
        self.scheduler_config = settings(
            enable_chunked_prefill=True,
            max_num_batched_tokens=96,
            max_num_scheduled_tokens=64,
            prefill_schedule_interval=4,
            watermark=0.25,
            stream_interval=9,
        )
        self.vllm_config = of(
            parallel_config=parallel, model_config=model, scheduler_config=self.scheduler_config
        )
        self.kv_cache_config = of(
            kv_cache_groups=[of(kv_cache_spec=FullAttentionSpec(), layer_names=[])]
        )
        pool = of(hash_block_size=16, num_gpu_blocks=9, enable_caching=True)
        pool.cache_full_blocks, pool.get_num_free_blocks = nothing, lambda: 8
        self.kv_cache_manager = of(
            block_pool=pool, allocate_slots=nothing, empty_kv_cache_blocks=()
        )
        self.policy = of(value="fcfs")
        self.connector = None
        self.max_num_scheduled_tokens, self.max_num_running_reqs = 64, 9
        self.max_num_active_reqs = 4
        self.requests: dict[str, Any] = {}
        self.waiting, self.running, self.deferred_waiting = list[Any](), list[Any](), set[Any]()
        self.scheduled = 0

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request

    def schedule(self) -> Any:
        self.scheduled += 1
        return SimpleNamespace(
            num_scheduled_tokens={}, scheduled_spec_decode_tokens={}, total_num_scheduled_tokens=0
        )

    def get_request_counts(self) -> tuple[int, int]:
        return 0, 0

    def shutdown(self) -> None:
        """Do nothing."""


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def module(name: str, **content: Any) -> None:
        one = ModuleType(name)
        one.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, one)

    for package in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched"):
        module(package)
    module("vllm.version", __version__="0.0")
    module("vllm.v1.core.kv_cache_utils", get_block_hash=bytes, get_group_id=int)
    module("vllm.v1.request", RequestStatus=SimpleNamespace(RUNNING=1))
    module("vllm.v1.core.sched.scheduler", Scheduler=StandIn)
    module("vllm.v1.core.sched.async_scheduler", AsyncScheduler=type("Async", (StandIn,), {}))
    monkeypatch.syspath_prepend(MODULE.parent)
    spec = importlib.util.spec_from_file_location("underglass_vllm", MODULE)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    monkeypatch.delenv("UNDERGLASS_RECORD_TOKENS", raising=False)
    yield loaded
    for thread in threading.enumerate():
        if thread.name == "underglass":
            thread.close()  # type: ignore[attr-defined]


def ask(number: int) -> Any:
    return SimpleNamespace(
        request_id=f"r{number}",
        arrival_time=0.0,
        prompt_token_ids=[1, 2, 3],
        num_prompt_tokens=3,
        max_tokens=4,
        priority=0,
        block_hashes=[b"secret hash of vLLM"],
        lora_request=SimpleNamespace(lora_name="poet"),
        cache_salt="secret salt",
        sampling_params=SimpleNamespace(prompt_logprobs=0),
    )


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_the_lines_of_a_healthy_recording(recorder, tmp_path, monkeypatch):
    monkeypatch.setenv("UNDERGLASS_RECORD", str(tmp_path / "run.jsonl"))
    scheduler = recorder.RecordingScheduler()
    scheduler.add_request(ask(1))
    scheduler.schedule()
    scheduler.shutdown()
    text = (tmp_path / "run.jsonl").read_text()
    header, arrived, step = map(json.loads, text.splitlines())
    assert header["settings"]["num_blocks"] == 8
    assert (header["settings"]["max_batch_size"], header["settings"]["watermark"]) == (4, 0.25)
    assert header["others"] == {
        "scheduler_config.max_num_batched_tokens": 96,
        "scheduler_config.of_a_later_release": 7,
        "scheduler_config.prefill_schedule_interval": 4,
    }
    started, request, *_ = read_source(tmp_path / "run.jsonl")
    assert started.source["others"] == header["others"]
    assert request.extra_key == ["poet", *arrived["salt"]]
    assert request.sampling == {"prompt_logprobs": 0}
    assert arrived["prompt"] == 3
    assert len(arrived["hashes"][0]) == 16
    assert "secret" not in text
    assert step["batch"] == {}


@pytest.mark.parametrize("file", ["", "run.jsonl"])
def test_a_live_page_gets_the_lines_and_a_file_is_written_only_if_asked_for(
    file, recorder, tmp_path, monkeypatch
):
    os.mkfifo(tmp_path / "shown")
    (tmp_path / "page").write_text(f"#!/bin/sh\n(echo $*; cat) > '{tmp_path}/shown'\n")
    (tmp_path / "page").chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNDERGLASS_COMMAND", str(tmp_path / "page"))
    monkeypatch.setenv("UNDERGLASS_LIVE", "0.0.0.0:8001")
    if file:
        monkeypatch.setenv("UNDERGLASS_RECORD", file)
    config = type("SchedulerConfig", (), {"get_scheduler_cls": lambda _: recorder.Scheduler})
    monkeypatch.setitem(
        sys.modules, "vllm.config.scheduler", SimpleNamespace(SchedulerConfig=config)
    )
    monkeypatch.setitem(sys.modules, "underglass_vllm", recorder)
    plugin = importlib.import_module("underglass_vllm_live")
    for _ in range(2):
        plugin.register()
    scheduler = config().get_scheduler_cls()()
    del config._without_underglass, config.get_scheduler_cls  # as in a release in which it moved
    plugin.register()
    scheduler.add_request(ask(1))
    scheduler.shutdown()
    asked, lines = (tmp_path / "shown").read_text().split("\n", 1)
    assert asked.split()[-4:] == ["--port", "8001", "--host", "0.0.0.0"]
    assert [json.loads(one)["type"] for one in lines.splitlines()] == ["underglass_vllm", "arrived"]
    assert {one.name for one in tmp_path.iterdir()} == {"page", "shown", *filter(None, [file])}
    assert not file or (tmp_path / file).read_text() == lines


@pytest.mark.parametrize("release", READ_BY_VLLM)
def test_every_setting_that_vllm_reads_is_recorded_or_known_to_change_no_decision(
    recorder, release
):
    settings = importlib.import_module("underglass_vllm_settings")
    known = {*settings.RECORDED.split(), *settings.LACKING, *settings.IRRELEVANT.split()}
    read = {one for one in READ_BY_VLLM[release]["read"] if not one.endswith("_config")}
    assert (read | set(READ_BY_VLLM[release]["fields"])) - known == set()


def fail(*_args: Any) -> None:
    raise ZeroDivisionError("a fault")


NO_DISK = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
# What fails: the file, what the module or one of its classes has instead, and the warning.
FAULTS = {
    "a full disk": ("/dev/full", {"Writer.FLUSH_SECONDS": 0.0}, "No space left"),
    "a folder that does not exist": ("missing/run.jsonl", {}, "run.jsonl"),
    "a disk slower than the engine": (
        "run.jsonl",
        {"Writer.QUEUE": 4, "Writer.run": lambda self: None},
        "loses lines, because 4 wait",
    ),
    "an error when a request arrives": ("run.jsonl", {"Recorder.arrived": fail}, "a fault"),
    "an error before a step": ("run.jsonl", {"Recorder.step_begins": fail}, "a fault"),
    "blocks of two sizes": ("run.jsonl", {"Scheduler.block_size": 24}, "differ in size"),
    "a queue that is not known": ("run.jsonl", {"Recorder._head": fail}, "why requests wait"),
    "an error after it": ("run.jsonl", {"Recorder.scheduled": fail}, "a fault"),
}


@NO_DISK
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_the_recording_with_one_warning_and_reaches_no_caller(
    recorder, tmp_path, monkeypatch, warnings, fault
):
    file, changes, wanted = FAULTS[fault]
    monkeypatch.setenv("UNDERGLASS_RECORD", str(tmp_path / file))
    for name, value in changes.items():
        owner, _, attribute = name.rpartition(".")
        monkeypatch.setattr(getattr(recorder, owner) if owner else recorder, attribute, value)
    scheduler = recorder.RecordingScheduler()
    if file == "/dev/full":
        scheduler._recorder.writer.join(10)  # the header does not fit
    for number in range(9):
        scheduler.add_request(ask(number))
        scheduler.schedule()
    assert len(scheduler.requests) == scheduler.scheduled == 9
    (warning,) = warnings()
    assert wanted in warning


@NO_DISK
def test_a_disk_that_is_full_at_the_end_is_said_too(recorder, monkeypatch, warnings):
    monkeypatch.setenv("UNDERGLASS_RECORD", "/dev/full")
    monkeypatch.setattr(
        recorder.Writer, "FLUSH_SECONDS", 1000.0
    )  # nothing is written before the end
    scheduler = recorder.RecordingScheduler()
    scheduler.add_request(ask(1))
    writer = scheduler._recorder.writer
    scheduler.shutdown()
    (warning,) = warnings()
    assert "the end of /dev/full" in warning
    assert writer._lines.empty()
