"""What all sessions share. Standard library only: each runs in its client's own environment.

    session = Session("openai")

    @session.check("models")
    def models(servers: Servers) -> None: ...

`python -m tests.clients.checks openai_session URL URL URL` runs it, and prints a line of JSON per
check. `checks.mjs` prints the same.
"""

import argparse
import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# A greedy continuation of this by the bundled model is some sixty words long.
PROMPT = "Once upon a time"
QUESTION = "What is 17 + 25?"
KEY = "key-of-the-class"

# A schema whose answers are short, so that the small model ends them within 60 tokens.
ANIMAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "animal": {"type": "string", "enum": ["owl", "cat", "ant"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["animal", "legs"],
    "additionalProperties": False,
}
DESCRIBE = "Describe an animal."
MODEL = Path(__file__).parents[2] / "engine" / "bundled"


@dataclass(frozen=True)
class Servers:
    """Where the servers are; all serve the bundled model.

    url    has room for every request
    full   lets one request wait and no more
    auto   `--model auto` over an empty directory, with the key KEY
    """

    url: str
    full: str
    auto: str


class Session:
    """The checks of one client, in order."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.checks: dict[str, Callable[[Servers], None]] = {}

    def check(self, name: str) -> Callable[[Callable[[Servers], None]], Callable[[Servers], None]]:
        """Add a check. It raises, whatever it raises, if something is wrong."""

        def add(function: Callable[[Servers], None]) -> Callable[[Servers], None]:
            self.checks[name] = function
            return function

        return add

    def texts(self, **ways: Callable[[Servers], str]) -> None:
        """Add checks of texts that a plain request gets, too; `chat_streamed` is "chat, streamed"."""
        for name, ask in ways.items():
            expected = completed if name.startswith("completion") else answered
            self.checks[name.replace("_", ", ")] = partial(_same_text, ask, expected)

    def animals(self, ways: dict[str, Callable[[Servers], object]]) -> None:
        """Add checks of answers that must fit ANIMAL."""
        for name, ask in ways.items():
            self.checks[name] = partial(_fits, ask)

    def loads(self, measure: Callable[..., None], **ways: tuple[str, ...]) -> None:
        """Add checks that measure a load, each with the options of a way to send it."""
        for name, options in ways.items():
            check = partial(_measured, measure, options)
            self.checks[f"load, {name.replace('_', ' ')}"] = check

    def cancel(self, ask: Callable[[Servers], Coroutine[Any, Any, object]]) -> None:
        """Add the check that the engine ends an endless request whose task is cancelled."""
        self.checks["cancel"] = partial(ends_when_cancelled, ask)

    def main(self) -> None:
        """Run all against the servers named on the command line."""
        parser = argparse.ArgumentParser()
        for server in ("url", "full", "auto"):
            parser.add_argument(server)
        servers = Servers(**vars(parser.parse_args()))
        for name, function in self.checks.items():
            error = ""
            try:
                function(servers)
            except Exception:
                error = traceback.format_exc(limit=-3)
            line = {"client": self.client, "check": name, "error": error}
            print(json.dumps(line), flush=True)


def call(url: str, path: str, body: object = None, key: str = KEY) -> Any:
    """The answer to a plain request: POST with a body, GET without."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        content = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, content, headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def completed(url: str, **fields: object) -> str:
    """What a completion says; greedy, if nothing else is asked for."""
    body = {"model": "bundled", "prompt": PROMPT, "temperature": 0, "max_tokens": 24} | fields
    text: str = call(url, "/v1/completions", body)["choices"][0]["text"]
    return text


def answered(url: str, content: object = QUESTION, **fields: object) -> str:
    """What a chat says; greedy, if nothing else is asked for."""
    body = {"model": "bundled", "temperature": 0, "max_tokens": 24} | fields
    body["messages"] = [{"role": "user", "content": content}]
    text: str = call(url, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
    return text


def _same_text(
    ask: Callable[[Servers], str], expected: Callable[[str], str], servers: Servers
) -> None:
    same(ask(servers), expected(servers.url))


def _measured(measure: Callable[..., None], options: tuple[str, ...], servers: Servers) -> None:
    measure(servers, *options)


def _fits(ask: Callable[[Servers], object], servers: Servers) -> None:
    found = ask(servers)
    assert is_animal(found), found


def ends_when_cancelled(
    ask: Callable[[Servers], Coroutine[Any, Any, object]], servers: Servers
) -> None:
    async def test() -> None:
        task = asyncio.create_task(ask(servers))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(test())
    wait_until_aborted(servers.url)


def is_animal(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"animal", "legs"}
        and value["animal"] in ANIMAL["properties"]["animal"]["enum"]
        and value["legs"] in range(10)
    )


def wait_until_idle(url: str) -> None:
    """Return once no engine has anything left to do. Raises TimeoutError after ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        health = call(url, "/health")
        engines = health.get("replicas", {"": health}).values()
        if not any(one["active"] + one["prefilling"] + one["waiting"] for one in engines):
            return
        time.sleep(0.02)
    raise TimeoutError(f"the engine still works: {health}")


def wait_until_aborted(url: str) -> None:
    """Return once the engine has ended the last request because its client left."""
    wait_until_idle(url)
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request("GET", "/trace")
        lines = connection.getresponse().read().splitlines()
    finally:
        connection.close()
    events = [event.get("event", event) for event in map(json.loads, lines)]  # of a replica
    ends = [event for event in events if event["type"] == "request_finished"]
    same(ends[-1]["reason"], "abort")


def raised(error: type[Exception], function: Callable[..., object], **fields: Any) -> Any:
    """Call a function that must raise this error; return the error."""
    try:
        function(**fields)
    except error as caught:
        return caught
    raise AssertionError(f"it was accepted: {fields}")


def reported(
    command: Callable[[Path], list[object]], name: str = "report.json", **environment: str
) -> Any:
    """Run a load generator's command, which writes its report to a file of this name; return it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, name)
        done = subprocess.run(
            command(report),
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        return json.loads(report.read_text())


def same(left: object, right: object) -> None:
    assert left == right, f"{left!r} != {right!r}"


if __name__ == "__main__":
    import_module(f"tests.clients.{sys.argv.pop(1)}").session.main()
