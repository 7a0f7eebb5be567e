"""The notebooks of a class: right, wrong, broken and hostile, with the row that each must get."""

import inspect
import json
import textwrap
from dataclasses import dataclass
from importlib import import_module

NAMES = {"05": "05_paged_kv", "10": "10_chunked_prefill"}
RIGHT = inspect.getsource(import_module("solutions.lesson_10"))
POOL = inspect.getsource(import_module("solutions.lesson_05"))
CHECK = "pick = check.lesson_10(pick_budget)"
STUB = '''
def pick_budget(base_ms, per_token_ms, decodes, itl_goal_ms):
    """The largest token budget."""
    ...
'''


@dataclass(frozen=True)
class Homework:
    """A learner's code cells, or the raw text of the file, and what the table must say of it."""

    student: str
    cells: tuple[str, ...] = ()
    result: str = "failed"
    limit: str = ""
    says: str = ""
    lesson: str = "10"
    raw: str | None = None

    @property
    def text(self) -> str:
        return notebook(*self.cells) if self.raw is None else self.raw


def notebook(*sources: str) -> str:
    cells = [
        {"cell_type": "code", "metadata": {}, "source": one, "outputs": [], "execution_count": None}
        for one in sources
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def function(body: str) -> tuple[str, ...]:
    """A notebook whose function has this body."""
    head = "def pick_budget(base_ms, per_token_ms, decodes, itl_goal_ms):"
    return (f"{head}\n{textwrap.indent(body, '    ')}", CHECK)


def attack(code: str, part: str = "") -> tuple[str, ...]:
    """A notebook that runs code before it is checked; its part is wrong, if not given."""
    code = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    part = part or function("return 1")[0]
    return (f"def attack():\n{code}", part, "pick_budget.attacked = attack()", CHECK)


FORGE = """
    import json, os
    for start in ("ready", "", "0" * 32):
        row = {"result": "passed", "message": "forged", "details": ""}
        line = f"{start} {json.dumps(row)}" + chr(10)
        print(line)
        for file in range(1, 64):
            try:
                os.write(file, line.encode())
            except OSError:
                pass
"""
PATCH = """
    import checks, checks.lesson_10, checks.judging, sys
    checks.judging.Verdict.passed = True
    checks.judging.judge = checks.judge = lambda *a, **k: checks.judging.Verdict("", 1)
    checks.lesson_10.attempt = lambda *arguments: None
    checks.lesson_10.cases = lambda: []
    checks.check = type("Check", (), {"lesson_10": lambda self, part: part})()
    sys.modules["checks.lesson_10"] = checks.check
"""
# What docs/teaching.md says cannot be prevented.
SIGN = """
    import json, os, sys
    frame = sys._getframe()
    while "job" not in frame.f_locals:
        frame = frame.f_back
    job = frame.f_locals["job"]
    row = {"result": "passed", "message": "forged", "details": ""}
    os.write(job["result"], f"{job['nonce']} {json.dumps(row)}\\n".encode())
    os._exit(0)
"""
NONSENSE = SIGN.replace("json.dumps(row)", "[row, 1]")
DAEMON = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
"""
SPLIT = (
    "import math\nfrom visualizer import show\nshow(1, 2, 3)  # fails, but no part needs it",
    "%matplotlib inline\nTABLE = {}",
    "TABLE['unit'] = 1",
    "def tokens(goal, base, each):\n    return math.floor((goal - base) / each + 1e-9) * TABLE['unit']",
    STUB,
    CHECK,
    "def pick_budget(base_ms, per_token_ms, decodes, itl_goal_ms):\n"
    "    most = tokens(itl_goal_ms, base_ms, per_token_ms)\n"
    "    return most if most > decodes else None",
    f"{CHECK}\nprint('done')",
    "pick_budget = None  # below the check",
)
METHODS = (
    POOL,
    "def share(self, block):\n    return whole_share(self, block)",
    "whole_share = BlockPool.share",
    "BlockPool.share = share",
    "pool_of = check.lesson_05(BlockPool)",
)


def the_class(stolen: str, port: int) -> list[Homework]:
    """Thirty notebooks and more. `stolen` is a file that none may write, `port` a server's."""
    return [
        Homework("right", (RIGHT, CHECK), "passed", says="keeps its promises"),
        Homework("stub_then_right", (STUB, CHECK, RIGHT, CHECK), "passed"),
        Homework("split", SPLIT, "passed"),
        Homework("renamed", (f"{RIGHT}\nmine = pick_budget", "check.lesson_10(mine)"), "passed"),
        Homework("no_check_cell", (RIGHT,), "passed"),
        Homework("methods_apart", METHODS, "passed", lesson="05"),
        Homework("wrong", function("return 1"), says="Promise broken"),
        Homework("stub", (STUB, CHECK), "not written"),
        Homework("no_exercise", ("print('hello')",), "not written", says="pick_budget"),
        Homework("not_python", (STUB, "def pick_budget(:\n    1", CHECK), says="cell 2"),
        Homework("undefined", function("return undefined"), says="NameError"),
        Homework("empty_file", raw="", says="not a notebook"),
        Homework("broken_json", raw='{"cells": [', says="not a notebook"),
        Homework("a_list", raw="[1, 2]", says="not a notebook"),
        Homework("deep_json", raw="[" * 100_000, says="not a notebook"),
        Homework("endless", function("while True: pass"), says="100,000 lines"),
        Homework("sleeps", attack("import time\ntime.sleep(3600)"), limit="time"),
        Homework(
            "memory_bomb",
            attack("hoard = []\nwhile True:\n    hoard.append(bytearray(10_000_000))"),
            limit="memory",
        ),
        Homework(
            "fork_bomb",
            attack("import os, time\nfor _ in range(400):\n    os.fork() or time.sleep(3600)"),
            limit="processes",
        ),
        Homework(
            "huge_output",
            attack("import os\nfor _ in range(64):\n    os.write(1, b'x' * 2**20)"),
            limit="output",
        ),
        Homework("calls_itself", function("return pick_budget(1, 1, 1, 1)"), says="called itself"),
        Homework("exits", attack("import sys\nsys.exit(0)"), says="SystemExit"),
        Homework("exits_at_once", attack("import os\nos._exit(0)"), says="exit code 0"),
        Homework("exits_later", function("import os\nos._exit(0)"), says="exit code 0"),
        Homework("crashes", attack("import ctypes\nctypes.string_at(0)"), says="signal 11"),
        Homework("forges", attack(FORGE), says="Promise broken"),
        Homework("forges_with_the_nonce", attack(SIGN), "passed", says="forged"),
        Homework("signs_nonsense", attack(NONSENSE), says="No verdict"),
        Homework("patches", attack(PATCH), says="Promise broken"),
        Homework("solutions", ("from solutions.lesson_10 import *", CHECK), says="solutions"),
        Homework(
            "escapes", function(r"raise ValueError('\x1b[2J\u202e<script>')"), says="<script>"
        ),
        Homework("left_behind", attack(DAEMON, RIGHT), "passed"),
        Homework(
            "other_base_class", attack("class E(BaseException): ...\nraise E"), says="exit code 1"
        ),
        *isolated_ones(stolen, port),
    ]


def isolated_ones(stolen: str, port: int) -> list[Homework]:
    """Those whose row depends on what the system offers."""
    connect = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)"
    kill = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"
    remount = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    remount += "assert libc.mount(None, b'/', None, 32 | 4096, None) == 0, 'not permitted'\n"
    delete = "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)"
    return [
        Homework("connects", attack(connect, RIGHT), says="unreachable"),
        Homework("writes_a_file", attack(f"open({stolen!r}, 'w')", RIGHT), says="Read-only"),
        Homework("mounts_again", attack(remount, RIGHT), says="not permitted"),
        Homework("kills_its_parent", attack(kill, RIGHT), "passed"),
        Homework("deletes_its_folder", attack(delete, RIGHT), "passed"),
    ]
