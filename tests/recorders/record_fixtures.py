"""Record the small fixtures in `tests/fixtures/vllm` that need no model.

    PYTHONPATH=recorders/vllm:notebooks VLLM_PYTHON -m tests.recorders.record_fixtures

async    asynchronous scheduling and preemptions, without token ids
rotated  a recording in three files, of which the second and the third begin in the middle
drafts   speculative decoding: two drafts per row
"""

import gzip
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from parity.records import Workload
from tests.parity.record_vllm import QUIET, SchedulerFactory, run
from tests.parity.recorded_steps import recording_to
from tests.parity.workloads import GENERATORS
from tests.recorders.against_vllm import rotating, run_with_drafts
from tests.recorders.scenarios import RECORDINGS

LINES_PER_FILE = 60


def record(factory: SchedulerFactory, name: str, workload: Workload) -> None:
    with TemporaryDirectory() as folder:
        with recording_to(Path(folder) / f"{name}.jsonl", tokens=name != "async"):
            scheduler = factory.scheduler(workload)
        if name == "rotated":
            rotating(scheduler._recorder, LINES_PER_FILE)
        (run_with_drafts if name == "drafts" else run)(factory, workload, scheduler, lambda: None)
        scheduler.shutdown()
        for file in Path(folder).iterdir():
            packed = gzip.compress(file.read_bytes(), mtime=0)
            (RECORDINGS / f"{file.name}.gz").write_bytes(packed)


def main() -> None:
    os.environ |= QUIET
    factory = SchedulerFactory()
    record(factory, "async", GENERATORS["async"](16))
    record(factory, "rotated", GENERATORS["serving"](32))
    record(factory, "drafts", GENERATORS["tight"](7))


if __name__ == "__main__":
    main()
