"""Set up the clients, start the servers, run the sessions, print what worked."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.process import serve_in_background
from tests.clients.checks import KEY, Servers

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "clients"
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Client:
    """A session and the environment it runs in; "" is the project's own."""

    session: str
    environment: str = ""


CLIENTS = {
    "openai": Client("openai_session"),
    "node": Client("openai_node_session.mjs", "node"),
    "litellm": Client("litellm_session", "gateways"),
    "langchain": Client("langchain_session", "gateways"),
    "llm": Client("llm_session", "gateways"),
    "lmql": Client("lmql_session", "lmql"),
    "lm-eval": Client("lm_eval_session", "lm-eval"),
}


def main() -> None:
    """Run the sessions named on the command line, or all. Exits with 1 if a check fails."""
    names = sys.argv[1:] or list(CLIENTS)
    if unknown := [name for name in names if name not in CLIENTS]:
        sys.exit(f"unknown client: {', '.join(unknown)}; there are {', '.join(CLIENTS)}")
    for environment in sorted({CLIENTS[name].environment for name in names} - {""}):
        set_up(environment)
    found: list[dict[str, str]] = []
    with ExitStack() as stack:
        empty = stack.enter_context(tempfile.TemporaryDirectory())
        servers = start_servers(stack, Path(empty))
        for name in names:
            print(f"{name} ...", flush=True)
            found += run(CLIENTS[name], servers)
    print(f"\n{table(found)}")
    failures = [check for check in found if check["error"]]
    for check in failures:
        print(f"\n{check['client']}, {check['check']}:\n{check['error']}")
    print(f"\n{len(found) - len(failures)} of {len(found)} checks passed")
    sys.exit(bool(failures))


def start_servers(stack: ExitStack, empty: Path) -> Servers:
    """Start the three servers that every session talks to; they stop with the stack."""
    auto = serve_in_background("auto", model_dir=empty, api_key=KEY)
    return Servers(
        url=stack.enter_context(serve_in_background(max_batch_size=32)).url,
        full=stack.enter_context(serve_in_background(max_waiting=1)).url,
        auto=stack.enter_context(auto).url,
    )


def set_up(environment: str) -> None:
    """Install an environment's requirements, unless they are there already."""
    requirements = HERE / f"requirements-{environment}.txt"
    folder = BUILD / environment
    installed = folder / requirements.name
    if installed.exists() and installed.read_text() == requirements.read_text():
        return
    print(f"setting up {environment} ...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if environment == "node":
        (folder / "package.json").write_text("{}")
        packages = requirements.read_text().split()
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent", *packages]
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(folder / "bin" / "python")
        install = [python, "-m", "pip", "install", "-q", "-r", str(requirements)]
    subprocess.run(install, cwd=folder, env=with_path(), check=True)
    installed.write_text(requirements.read_text())


def run(client: Client, servers: Servers) -> list[dict[str, str]]:
    """What a session says about each of its checks; its notes are printed."""
    addresses = [servers.url, servers.full, servers.auto]
    folder = BUILD / client.environment if client.environment else BIN.parent
    if client.environment == "node":
        command = ["node", str(HERE / client.session), *addresses]
    else:
        command = [str(folder / "bin" / "python"), "-m", f"tests.clients.{client.session}"]
        command += addresses
    where = folder if client.environment == "node" else HERE.parents[1]
    done = subprocess.run(
        command, cwd=where, env=with_path(), capture_output=True, text=True, check=False
    )
    checks: list[dict[str, Any]] = []
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            checks.append(json.loads(line))
        elif line.startswith("#"):
            print(f"  {line.removeprefix('# ')}")
    if done.returncode or not checks:
        last = done.stderr[-2000:]
        checks.append({"client": client.session, "check": "the session", "error": last or "ended"})
    return checks


def with_path() -> dict[str, str]:
    """The environment, in which `npm` and `node` are the project's."""
    return os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def table(found: list[dict[str, str]]) -> str:
    """Checks down, clients across."""
    clients = list(dict.fromkeys(check["client"] for check in found))
    checks = list(dict.fromkeys(check["check"] for check in found))
    results = {(one["client"], one["check"]): "FAIL" if one["error"] else "ok" for one in found}
    lines = [[" ", *clients]]
    lines += [
        [check, *(results.get((client, check), "-") for client in clients)] for check in checks
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


if __name__ == "__main__":
    main()
