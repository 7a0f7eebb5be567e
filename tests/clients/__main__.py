"""Set up the clients, start the servers, run the sessions, print what worked."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from server.process import BackgroundServer, serve_in_background
from tests.clients.checks import KEY, Servers
from tests.clients.environments import BIN, BUILD, HERE, set_up, with_path
from tests.clients.recording import recorder
from tests.server.gateway.cluster import start_gateway
from tests.server.gateway.conftest import wait_for


@dataclass(frozen=True)
class Client:
    """A session and the environment it runs in; "" is the project's own."""

    session: str
    environment: str = ""


CLIENTS = {
    "openai": Client("openai_session"),
    "openai-older": Client("openai_session", "gateways"),
    "openai-node": Client("openai_node_session.mjs", "node"),
    "ai-sdk": Client("ai_sdk_session.mjs", "node"),
    "litellm": Client("litellm_session", "gateways"),
    "langchain": Client("langchain_session", "gateways"),
    "llm": Client("llm_session", "gateways"),
    "lmql": Client("lmql_session", "lmql"),
    "lm-eval": Client("lm_eval_session", "lm-eval"),
    "pydantic-ai": Client("pydantic_ai_session", "pydantic-ai"),
    "instructor": Client("instructor_session", "instructor"),
    "guidellm": Client("guidellm_session", "guidellm"),
    "aiperf": Client("aiperf_session", "aiperf"),
    "sglang": Client("sglang_session", "sglang"),
}


def main() -> None:
    """Run the sessions named on the command line, or all. Exits with 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="client", help=f"{', '.join(CLIENTS)}; all if none"
    )
    parser.add_argument("--record", action="store_true", help="keep the bodies for the test suite")
    parser.add_argument(
        "--gateway", action="store_true", help="through a gateway over two replicas"
    )
    options = parser.parse_args()
    names: list[str] = options.names or list(CLIENTS)
    if unknown := [name for name in names if name not in CLIENTS]:
        parser.error(f"unknown client: {', '.join(unknown)}; there are {', '.join(CLIENTS)}")
    for environment in sorted({CLIENTS[name].environment for name in names} - {""}):
        set_up(environment)
    found: list[dict[str, str]] = []
    with ExitStack() as stack:
        empty = stack.enter_context(tempfile.TemporaryDirectory())
        servers = start_servers(stack, Path(empty), through_gateway=options.gateway)
        for name in names:
            print(f"{name} ...", flush=True)
            if options.record:
                with recorder(servers.url) as (url, record):
                    found += run(CLIENTS[name], replace(servers, url=url))
                record.save(name)
            else:
                found += run(CLIENTS[name], servers)
    print(f"\n{table(found)}")
    failures = [check for check in found if check["error"]]
    for check in failures:
        print(f"\n{check['client']}, {check['check']}:\n{check['error']}")
    print(f"\n{len(found) - len(failures)} of {len(found)} checks passed")
    sys.exit(bool(failures))


def start_servers(
    stack: ExitStack,
    empty: Path,
    serve: Callable[..., BackgroundServer] = serve_in_background,
    *,
    through_gateway: bool = False,
) -> Servers:
    """Start the three servers that every session talks to; they stop with the stack.

    With a gateway, the first has two replicas and the second has one; a gateway knows no other models,
    so the third is always a server.
    """

    def address(replicas: int, **settings: int) -> str:
        count = replicas if through_gateway else 1
        servers = [stack.enter_context(serve(**settings)) for _ in range(count)]
        if not through_gateway:
            return servers[0].url
        gateway = stack.enter_context(start_gateway(*(server.url for server in servers)))
        wait_for(gateway.url, *map(str, range(count)))
        return gateway.url

    auto = serve("auto", model_dir=empty, api_key=KEY)
    return Servers(
        url=address(2, max_batch_size=32),
        full=address(1, max_waiting=1),
        auto=stack.enter_context(auto).url,
    )


def run(client: Client, servers: Servers) -> list[dict[str, str]]:
    """What a session says about each of its checks; its notes are printed."""
    addresses = [servers.url, servers.full, servers.auto]
    folder = BUILD / client.environment if client.environment else BIN.parent
    if client.environment == "node":
        command = ["node", str(HERE / client.session), *addresses]
    else:
        command = [str(folder / "bin" / "python"), "-m", "tests.clients.checks"]
        command += [client.session, *addresses]
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


def table(found: list[dict[str, str]]) -> str:
    clients = list(dict.fromkeys(check["client"] for check in found))
    checks = list(dict.fromkeys(check["check"] for check in found))
    results = {(one["client"], one["check"]): "FAIL" if one["error"] else "ok" for one in found}
    rows = [[one, *(results.get((client, one), "-") for client in clients)] for one in checks]
    width = max(map(len, (*clients, *checks))) + 2
    return "\n".join("".join(cell.ljust(width) for cell in row) for row in (["", *clients], *rows))


if __name__ == "__main__":
    main()
