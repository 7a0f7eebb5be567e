"""An error of the recorder ends the recording, never the engine. vLLM's classes are stand-ins here."""

import importlib.util
import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

MODULE = Path(__file__).parents[2] / "recorders" / "vllm" / "underglass_vllm.py"


class FullAttentionSpec:
    block_size = 16


class StandIn:
    """As much of vLLM's scheduler as a recorder touches while requests arrive."""

    def __init__(self) -> None:
        parallel = SimpleNamespace(data_parallel_size=1, data_parallel_rank=0)
        model = SimpleNamespace(model="tiny", tokenizer="tiny")
        self.vllm_config = SimpleNamespace(parallel_config=parallel, model_config=model)
        self.scheduler_config = SimpleNamespace(enable_chunked_prefill=True)
        group = SimpleNamespace(kv_cache_spec=FullAttentionSpec())
        self.kv_cache_config = SimpleNamespace(kv_cache_groups=[group])
        pool = SimpleNamespace(
            hash_block_size=16,
            num_gpu_blocks=9,
            enable_caching=True,
            cache_full_blocks=lambda *_args, **_kwargs: None,
            get_num_free_blocks=lambda: 8,
        )
        self.kv_cache_manager = SimpleNamespace(
            block_pool=pool,
            allocate_slots=lambda *_args, **_kwargs: None,
            empty_kv_cache_blocks=(),
        )
        self.policy = SimpleNamespace(value="fcfs")
        self.block_size, self.connector = 16, None
        self.max_num_scheduled_tokens, self.max_num_running_reqs = 64, 4
        self.requests: dict[str, Any] = {}
        self.waiting: list[Any] = []
        self.running: list[Any] = []
        self.deferred_waiting: set[Any] = set()
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
    module("vllm.v1.core.kv_cache_utils", get_block_hash=bytes)
    module("vllm.v1.request", RequestStatus=SimpleNamespace(RUNNING=1))
    module("vllm.v1.core.sched.scheduler", Scheduler=StandIn)
    module("vllm.v1.core.sched.async_scheduler", AsyncScheduler=type("Async", (StandIn,), {}))
    spec = importlib.util.spec_from_file_location("underglass_vllm", MODULE)
    assert spec is not None
    assert spec.loader is not None
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
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_the_lines_of_a_healthy_recording(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERGLASS_RECORD", str(tmp_path / "run.jsonl"))
    scheduler = recorder.RecordingScheduler()
    scheduler.add_request(ask(1))
    scheduler.schedule()
    scheduler.shutdown()
    text = (tmp_path / "run.jsonl").read_text()
    header, arrived, step = map(json.loads, text.splitlines())
    assert header["settings"]["num_blocks"] == 8
    assert arrived["prompt"] == 3
    assert len(arrived["hashes"][0]) == 16
    assert "secret" not in text
    assert step["rows"] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_recording_with_one_warning(
    recorder: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("UNDERGLASS_RECORD", "/dev/full")
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 0.0)
    scheduler = recorder.RecordingScheduler()
    scheduler._recorder.writer.join(10)  # the header does not fit
    for number in range(3):
        scheduler.add_request(ask(number))
        scheduler.schedule()
    assert len(scheduler.requests) == scheduler.scheduled == 3
    (warning,) = warnings(caplog)
    assert "No space left" in warning
    assert "/dev/full" in warning


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_at_the_end_is_said_too(
    recorder: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("UNDERGLASS_RECORD", "/dev/full")
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 1000.0)  # nothing is written before the end
    scheduler = recorder.RecordingScheduler()
    scheduler.add_request(ask(1))
    writer = scheduler._recorder.writer
    scheduler.shutdown()
    (warning,) = warnings(caplog)
    assert "the end of /dev/full" in warning
    assert writer._lines.empty()


def test_a_folder_that_does_not_exist_leaves_the_engine_unrecorded(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("UNDERGLASS_RECORD", str(tmp_path / "missing" / "run.jsonl"))
    scheduler = recorder.RecordingScheduler()
    scheduler.add_request(ask(1))
    scheduler.schedule()
    assert scheduler.scheduled == 1
    assert len(warnings(caplog)) == 1


def test_a_disk_slower_than_the_engine_ends_the_recording(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("UNDERGLASS_RECORD", str(tmp_path / "run.jsonl"))
    monkeypatch.setattr(recorder, "QUEUE", 4)
    monkeypatch.setattr(recorder._Writer, "run", lambda self: None)  # writes nothing
    scheduler = recorder.RecordingScheduler()
    for number in range(9):
        scheduler.add_request(ask(number))
    assert len(scheduler.requests) == 9
    (warning,) = warnings(caplog)
    assert "4 lines wait" in warning


@pytest.mark.parametrize("broken", ["arrived", "step_begins", "scheduled"])
def test_an_error_in_the_recorder_reaches_no_caller(
    recorder: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    monkeypatch.setenv("UNDERGLASS_RECORD", str(tmp_path / "run.jsonl"))

    def fail(*_args: Any) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(recorder.Recorder, broken, fail)
    scheduler = recorder.RecordingScheduler()
    for number in range(3):
        scheduler.add_request(ask(number))
        scheduler.schedule()
    assert scheduler.scheduled == 3
    (warning,) = warnings(caplog)
    assert "a fault" in warning


def test_what_is_not_recorded_is_said_once(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("UNDERGLASS_RECORD", str(tmp_path / "run.jsonl"))
    monkeypatch.setattr(FullAttentionSpec, "block_size", 32)
    recorder.RecordingScheduler().add_request(ask(1))
    (warning,) = warnings(caplog)
    assert "differ in size" in warning
