"""How many places a change touches: an event, a setting, a metric and a lesson are added to a copy.

CONTRIBUTING.md states the places. Everything else is derived or written by a command, so the checks in
the copy pass after the additions. `make soak` also leaves out each place in turn: then a check fails.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOMS = ("engine", "server", "visualizer", "underglass", "notebooks", "project", "tests", "docs")
LEFT_OUT = shutil.ignore_patterns("node_modules", "__pycache__", "*.png", "clients")
Edit = Callable[[str], str]  # from the text of a file, "" if it is new, to the new text


def insert(text: str, *, after: str = "", before: str = "") -> Edit:
    """Insert text at the one place that `after` or `before` names."""

    def edit(old: str) -> str:
        place = after or before
        assert old.count(place) == 1, f"the file must have {place!r} once"
        return old.replace(place, after + text + before)

    return edit


def changed(old: str, new: str) -> Edit:
    return lambda text: insert(new, before=old)(text).replace(new + old, new)


def of_lesson_19(path: str) -> Edit:
    """The same file of a lesson 24, with its numbers and names."""
    text = next(REPOSITORY.glob(path.replace("24", "19"))).read_text("utf-8")
    text = re.sub(r"(\[\*\*[^*]+)(\*\*\]\(\.\./docs/glossary)", r"\1 again\2", text)
    text = re.sub(r'(?<=")19(?=\.\w+\\")|(?<=\\")19(?=\.)|(?<=# )19\b', "24", text)
    text = re.sub(r"(?i)(lesson[_ ])19", r"\g<1>24", text)
    return lambda _: text


WORDS = ("disaggregation", "KV transfer", "break-even")
LESSON = "notebooks/24_prefill_here_decode_there.ipynb"
ADDITIONS: dict[str, dict[str, Edit]] = {
    "An event": {
        "engine/core/log/vocabulary.py": insert(
            'class EngineHeld(Event):\n    """The engine has paused."""\n\n\n',
            before="class EngineResumed(Event):",
        ),
        "engine/core/log/fold.py": changed(
            "    def _engine_paused(self, _event: v.EnginePaused) -> None:\n",
            "    def _engine_paused(self, _event: v.EnginePaused) -> None:\n        pass\n\n"
            "    def _engine_held(self, _event: v.EngineHeld) -> None:\n",
        ),
        "visualizer/frontend/src/model/fold.ts": changed(
            "  engine_paused() {\n", "  engine_paused() {}\n\n  engine_held() {\n"
        ),
        "engine/core/log/recorder.py": insert(
            "        self._emit(v.EngineHeld())\n",
            before='        self._emit(v.EnginePaused({"at": self._clock.now()}))\n',
        ),
    },
    "A setting": {
        "engine/core/config.py": insert(
            "    max_prompt: Annotated[\n"
            '        int, setting("Longest prompt.", ge=1, range=(1, 9, 1), vllm="`--longest`")\n'
            "    ] = 1 << 20\n",
            before="    policy: Annotated[\n",
        ),
        "engine/core/scheduling/admission.py": insert(
            "        if len(tokens) > config.max_prompt:\n"
            '            raise RequestError("prompt", f"at most {config.max_prompt} tokens")\n',
            before="        if not config.chunked_prefill and len(tokens) > config.token_budget:\n",
        ),
        "tests/engine/test_max_prompt.py": lambda _: (
            "import pytest\n"
            "from engine import CostRunner, Engine, EngineConfig, RequestError\n\n\n"
            "def test_a_long_prompt_is_rejected() -> None:\n"
            "    runner = CostRunner(base_ms=1, per_token_ms=1)\n"
            "    engine = Engine(runner, EngineConfig(max_prompt=3))\n"
            "    engine.submit([1, 2, 3])\n"
            '    with pytest.raises(RequestError, match="at most 3"):\n'
            "        engine.submit([1, 2, 3, 4])\n"
        ),
    },
    "A metric": {
        "server/core/measures.py": lambda text: insert(
            "            self.largest_step = max(self.largest_step, tokens)\n",
            after="            self.step_tokens.observe(tokens)\n",
        )(
            insert(
                "        self.largest_step = 0\n",
                after="        self.step_tokens = Histogram(_STEP_TOKENS)\n",
            )(text)
        ),
        "server/api/metrics.py": insert(
            '    Declared(_GAUGE, "underglass:largest_step", "Tokens.", _measured("largest_step")),\n',
            after="METRICS = [\n",
        ),
    },
    "A lesson": {
        **{
            path: of_lesson_19(path)
            for path in (
                LESSON,
                "notebooks/checks/lesson_24.py",
                "notebooks/solutions/lesson_24.py",
                "notebooks/solutions/wrong/lesson_24.py",
                "tests/lessons/test_lesson_24.py",
            )
        },
        "docs/glossary.md": insert(
            "".join(f"| **{word} again** | the same |\n" for word in WORDS),
            before="| **jump-forward** |",
        ),
    },
}
# These write what is derived from the additions.
COMMANDS = ("authoring.generated", "authoring.contents")
# These judge each addition.
FOLD = "tests/visualizer/test_golden_fold.py::test_the_board_and_the_frame_say_the_same_of_each_request"
CHECKS = {
    "An event": [
        "tests/visualizer/test_event_types.py",
        "tests/engine/test_random_workloads.py::test_no_kind_of_event_is_superfluous[EngineHeld]",
        "tests/engine/test_random_workloads.py::test_two_runs_of_one_workload_give_equal_logs",
        FOLD,
    ],
    "A setting": [
        "tests/test_tables.py",
        "tests/engine/test_bad_input.py::test_a_setting_is_taken_or_refused_by_name[max_prompt]",
        "tests/engine/test_max_prompt.py",
    ],
    "A metric": [
        "tests/test_tables.py",
        "tests/server/test_metrics.py::test_the_names_are_those_of_vllm",
    ],
    "A lesson": [
        "tests/test_tables.py",
        f"tests/lessons/test_parts.py::test_a_lesson_is_as_it_should_be[{Path(LESSON).stem}]",
        "tests/lessons/test_parts.py::test_the_contents_list_every_lesson_with_its_question_and_file",
        "tests/lessons/test_slides.py::test_the_decks_have_all_lessons_once",
        "tests/lessons/test_exercises.py::test_the_smallest_cases_come_first[lesson_24]",
        "tests/lessons/test_wrong_parts.py::"
        "test_a_wrong_part_is_rejected_for_the_promise_that_it_breaks[lesson_24-all_or_nothing]",
        "tests/lessons/test_lesson_24.py",
    ],
}
# These fail unless what is derived from a setting or a metric names it.
SETTING = """
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner
from server.api.live import install_page
from server.api.operation import RestartRequest
from underglass.commands import app
from visualizer.playing.settings import CONTROLS

pages = FastAPI()
install_page(pages)
assert "--max-prompt " in CliRunner().invoke(app, ["serve", "--help"]).stdout
assert "max_prompt" in TestClient(pages).get("/").text
assert "max_prompt" in str(RestartRequest.model_json_schema())
assert "max_prompt" in CONTROLS
assert "`--longest`" in open("docs/glossary.md").read()
"""
METRIC = 'assert "`underglass:largest_step`" in open("docs/metrics.md").read()'
DERIVED = {"A setting": SETTING, "A metric": METRIC}


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(map(str, (copy, copy / "notebooks")))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def complaint(copy: Path, *kinds: str) -> str:
    """Run the checks of some kinds of addition in the copy; return what the first to fail prints."""
    checks = dict.fromkeys(check for kind in kinds for check in CHECKS[kind])
    script = "".join(DERIVED.get(kind, "") for kind in kinds)
    for command in (["-m", "pytest", "-q", "-x", "-n", "0", *checks], ["-c", script]):
        done = run(copy, *command)
        if done.returncode:
            return done.stdout + done.stderr
    return ""


def copy_with(folder: Path, additions: dict[str, Edit]) -> Path:
    """Copy the repository, make the additions, and run the commands that write what follows."""
    copy = folder / "copy"
    for room in ROOMS:
        shutil.copytree(REPOSITORY / room, copy / room, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, copy)
    for name, edit in additions.items():
        file = copy / name
        file.write_text(edit(file.read_text("utf-8") if file.exists() else ""), "utf-8")
    for command in COMMANDS:
        run(copy, "-m", *command.split())
    return copy


def stated(kind: str) -> tuple[int, list[str]]:
    """How many places CONTRIBUTING.md states for a change, and the files that it names."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    [(count, named)] = re.findall(rf"- \*\*{kind}\*\* \((\d) places\):(.*?)[.;]\s", text, re.DOTALL)
    files = [name for name in re.findall(r"`([\w/.]+)`", named) if (REPOSITORY / name).is_file()]
    return int(count), files


@pytest.mark.parametrize("kind", ADDITIONS)
def test_an_addition_touches_as_many_places_as_stated(kind: str) -> None:
    count, named = stated(kind)
    assert len(ADDITIONS[kind]) == count
    assert set(named) <= set(ADDITIONS[kind])


def test_everything_else_is_derived(tmp_path: Path) -> None:
    edits = {name: edit for places in ADDITIONS.values() for name, edit in places.items()}
    found = complaint(copy_with(tmp_path, edits), *ADDITIONS)
    assert not found, found


PLACES = [(kind, name) for kind, places in ADDITIONS.items() for name in places]


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "place"), PLACES, ids=[f"{kind}-{name}" for kind, name in PLACES])
def test_a_missing_place_is_found(kind: str, place: str, tmp_path: Path) -> None:
    others = {name: edit for name, edit in ADDITIONS[kind].items() if name != place}
    assert complaint(copy_with(tmp_path, others), kind)
