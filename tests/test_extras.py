"""What works with a plain `pip install underglass`, and what says which extra it needs.

Each test runs a Python of its own, in which importing other libraries fails as if they were missing.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine.core.extras import EXTRA_OF

REPOSITORY = Path(__file__).parents[1]
OURS = ("engine", "server", "underglass", "visualizer")
# Imported in front of a test's program. `libraries` are the only ones that can be imported, or none of
# `missing` can be.
HOOK = """
import sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if {condition}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hook())
"""
ONLY_MSGSPEC = HOOK.format(
    condition=f"top not in sys.stdlib_module_names and top not in {('msgspec', *OURS)}"
)
PLAIN_INSTALL = HOOK.format(condition=f"top in {sorted(EXTRA_OF)}")


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)


def test_the_event_log_needs_only_msgspec_and_no_other_room():
    done = run(
        ONLY_MSGSPEC
        + """
import gzip
from engine.core.log import EventLog

log = EventLog.from_bytes(gzip.open("visualizer/scenarios/preemption.jsonl.gz").read())
log.state()
rooms = ("visualizer", "engine.core.scheduling", "engine.core.cache", "engine.core.output",
    "engine.core.engine", "engine.extensions", "engine.models", "engine.simulation", "engine.cluster")
print([room for room in rooms if room in sys.modules])
"""
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_simulator_the_explanations_and_the_comparisons_need_only_msgspec():
    done = run(
        ONLY_MSGSPEC
        + """
from engine import EngineConfig, Load, simulate, simulate_cluster, simulated, study, sweep, what_if
from engine.simulation.cost_runner import Cost
from engine.simulation.traffic import Traffic
from visualizer import gallery, read, to_html, to_perfetto
from visualizer.comparing.compared_runs import ComparedRuns, compare_logs
from visualizer.playing.game import Game
from visualizer.reading.summary import summary

workload = Traffic(requests=6).workload
config = EngineConfig(token_budget=48, max_batch_size=6, max_kv_tokens=224, block_size=8)
log = simulate(workload, config, cost=Cost(10, 0.25))
changed = what_if(log, token_budget=16)
assert ComparedRuns(log, changed).page_facts()["difference"]
assert "<html" in compare_logs(log, changed).to_html()
cluster = simulate_cluster(workload, config, cost=Cost(10, 0.25), replicas=2)
assert "<html" in compare_logs(cluster, cluster).to_html()
preemption = gallery()["preemption"].log
assert to_html(preemption) and to_perfetto(preemption)
reading = read(log)
assert reading.request_rows and reading.step_rows and reading.token_rows and reading.waterfall.totals
studied = study(log, {"token_budget": [32]})
for text in (reading.why_slow(1), reading.stuck(2), reading.why(1), studied, summary(log)):
    assert str(text)
assert "Ada" in Game().html()
assert "Knee" in str(sweep(simulated(), Load(requests=5, seconds=0), rates=[4]))
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


def commands(*lines: str) -> list[tuple[int, str, str]]:
    """Run commands in a plain install; return the exit code and the outputs of each."""
    done = run(
        PLAIN_INSTALL
        + """
import json
from typer.testing import CliRunner
from underglass.commands import app

done = [CliRunner().invoke(app, line.split()) for line in sys.argv[1:]]
print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in done]))
""",
        *lines,
    )
    assert done.returncode == 0, done.stderr
    return [(code, out, error) for code, out, error in json.loads(done.stdout)]


def test_commands_that_read_logs_work_in_a_plain_install_and_others_name_their_extra(tmp_path):
    works = {
        f"open preemption --summary --csv {tmp_path} --perfetto {tmp_path}/p.json": "TTFT",
        f"open preemption --html {tmp_path}/board.html": "board.html",
        f"open chunk_budget mixed_step --html {tmp_path}/two.html": "two.html",
        "why preemption Ada": "decode",
        f"what-if preemption token_budget=8 --html {tmp_path}/what_if.html": "token_budget=8",
        "--help": "serve",
        "serve --help": "--token-budget",
    }
    needs = {
        "serve": "server",
        "serve --replica http://127.0.0.1:1": "gateway",
        "lmtp": "server",
        "train": "model",
        "listen tcp://127.0.0.1:5557": "kv-events",
        "spans preemption": "spans",
    }
    done = dict(zip([*works, *needs], commands(*works, *needs), strict=True))
    for line, word in works.items():
        code, out, error = done[line]
        assert (code, error) == (0, "") and word in out, line
    for line, extra in needs.items():
        code, out, error = done[line]
        assert (code, out) == (2, "")
        assert re.fullmatch(rf"underglass: .+ needs \w+: pip install '\.\[{extra}\]'\n", error)


def test_a_function_that_needs_an_extra_names_it():
    expected = {
        "from visualizer import show": "lab",
        "from visualizer import compare": "lab",
        "from visualizer import playground": "lab",
        "from visualizer import watch": "lab",
        "from visualizer import figures": "lab",
        "from server.client import Client": "lab",
        "read(log).requests": "lab",
        "read(log).waterfall.frame": "lab",
        "compare_logs(log, log).requests": "lab",
        "compare_logs(log, log).totals": "lab",
        "Engine.load()": "model",
        "HFTokenizer('engine/bundled')": "model",
        "ByteTokenizer().chat_template.render([{'role': 'user', 'content': 'Hi'}])": "model",
        "tour_to_file(Path('tour.html'), Path('tour.gif'))": "pictures",
    }
    done = run(
        PLAIN_INSTALL
        + """
import json
from engine import Engine, SamplingParams
from engine.core.extras import MissingExtraError
from engine.simulation.cost_runner import CostRunner
from engine.core.byte_tokenizer import ByteTokenizer
from engine.models.text.hf_tokenizer import HFTokenizer
from pathlib import Path
from visualizer import gallery, read
from visualizer.comparing.compared_runs import compare_logs
from visualizer.pictures import tour_to_file

log = gallery()["preemption"].log

def error_of(program):
    try:
        exec(program)
    except MissingExtraError as error:
        return str(error)

runner = CostRunner(10, 0.25)
params = SamplingParams(max_tokens=3)
assert len(Engine(runner, clock=runner.clock).complete(["Hi", "Ho"], params)) == 2
print(json.dumps({program: error_of(program) for program in sys.argv[1:]}))
""",
        *expected,
    )
    assert done.stderr == ""
    line = re.compile(r".+ needs \w+: pip install '\.\[(.+)\]'")
    errors = {name: line.sub(r"\1", str(error)) for name, error in json.loads(done.stdout).items()}
    assert errors == expected


def imported_libraries() -> Iterator[str]:
    """Yield the libraries that the package imports anywhere."""
    for folder in OURS:
        for file in (REPOSITORY / folder).rglob("*.py"):
            if "node_modules" in file.parts:
                continue
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                yield from (name.partition(".")[0] for name in names)


def installed_by(requirements: list[str]) -> set[str]:
    """Return the distributions that requirements install, with everything that those require."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    found: set[tuple[str, str]] = set()
    open_ = [Requirement(text) for text in requirements]
    while open_:
        one = open_.pop()
        name = canonicalize_name(one.name)
        for extra in ("", *one.extras):
            if (name, extra) in found:
                continue
            found.add((name, extra))
            if name == "underglass":
                open_ += map(Requirement, project["optional-dependencies"].get(extra, []))
                continue
            for text in metadata.requires(name) or []:
                required = Requirement(text)
                if required.marker is None or required.marker.evaluate({"extra": extra}):
                    open_.append(required)
    return {name for name, _ in found}


def test_each_library_that_is_imported_is_installed_by_its_extra():
    distributions = metadata.packages_distributions()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    core = installed_by(project["dependencies"])
    installs = {extra: installed_by([f"underglass[{extra}]"]) for extra in set(EXTRA_OF.values())}
    own = {*sys.stdlib_module_names, *OURS, "checks", "grading"}  # the last two are in a clone
    for library in sorted(set(imported_libraries()) - own):
        names = set(map(canonicalize_name, distributions.get(library, [])))
        allowed = core if library not in EXTRA_OF else installs[EXTRA_OF[library]]
        assert names & allowed, f"{library} is in no extra that engine/core/extras.py names for it"
