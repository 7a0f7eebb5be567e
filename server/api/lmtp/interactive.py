"""`underglass lmtp`: send prompts to a server from a terminal.

    > Once upon a time                             send a prompt and stream its output
    > max_tokens=20 temperature=0.8 Once upon      set parameters for this prompt
    > max_tokens=20                                set a parameter for all later prompts
    > keep=tale Once upon a time                   store prompt and output in the buffer "tale"
    > from=tale The end of it:                     continue from that buffer
    > release=tale                                 delete that buffer

The parameters are the fields of GENERATE. Ctrl-C ends an output; Ctrl-D ends the client. Lines may also
come from a pipe; stdout then contains only the outputs.
"""

import asyncio
import re
import signal
import socket
import sys
import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
from websockets.exceptions import InvalidHandshake, InvalidURI

from server.api.lmtp.client import Client, StreamError, connect
from server.api.lmtp.frames import GenerateCall
from server.core.signals import on_signal

DEFAULT_MAX_TOKENS = 64
PARAMETERS = {field.encode_name for field in msgspec.structs.fields(GenerateCall)}
PARAMETERS -= {"stream_id", "prompt"}
# Appended to an error message if the same request may succeed later.
RETRY_HINT = " (the same prompt may succeed later)"

_PARAMETER = re.compile(r'(?:^|(?<=\s))([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|\S*)(?:\s+|$)')


@dataclass(frozen=True, slots=True)
class Line:
    """A parsed line of input."""

    prompt: str
    parameters: dict[str, Any]


class LineError(ValueError):
    """A line is invalid. The message says how to correct it."""


def parse_line(text: str) -> Line:
    """Parse a line: `name=value` words are parameters, and the rest is the prompt.

    A prompt in double quotes is taken as it is, so it may contain text like "x=5". Raises LineError
    for an unknown parameter.
    """
    quoted, prompt = re.search(r'(?:^|\s)(".*")\s*$', text), None
    if quoted is not None and not re.search(r"[A-Za-z_]\w*=$", text[: quoted.start(1)]):
        prompt = _value(quoted[1])
        text = text[: quoted.start(1)]
    parameters = {}
    for name, value in _PARAMETER.findall(text):
        if name not in PARAMETERS | {"release"}:
            raise LineError(
                f"{name} is not a parameter ({', '.join(sorted(PARAMETERS))}); "
                f'put a prompt that contains "=" in double quotes'
            )
        parameters[name] = _value(value)
    rest = _PARAMETER.sub("", text).strip()
    return Line(rest if prompt is None else str(prompt), parameters)


def _value(text: str) -> Any:
    """Parse a value as JSON; return other text unchanged, without its double quotes."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.strip('"') if len(text) > 1 and text[0] == text[-1] == '"' else text


class Terminal:
    """Reads prompts and streams their outputs until the end of stdin.

    `failed` says whether any prompt failed.
    """

    def __init__(self, client: Client) -> None:
        self.failed = False
        self._client = client
        self._client.on_message = self._print_status
        self._defaults: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS}
        self._output: asyncio.Task[None] | None = None
        self._is_terminal = sys.stdin.isatty()

    async def run(self) -> None:
        """Process lines until the end of stdin."""
        prompt = "> " if self._is_terminal else ""
        on_signal(signal.SIGINT, self._interrupt)
        while (text := await _next_line(prompt)) is not None:
            try:
                line = parse_line(text)
                if "release" in line.parameters:
                    await self._client.release(str(line.parameters["release"]))
                elif line.prompt:
                    await self._generate(line)
                elif line.parameters:
                    self._defaults |= line.parameters
            except (LineError, StreamError) as error:
                self.failed = True
                again = RETRY_HINT if getattr(error, "retry", False) else ""
                print(f"underglass: {error}{again}", file=sys.stderr)
                if getattr(error, "code", "") == "connection_lost":
                    return

    async def _generate(self, line: Line) -> None:
        self._output = asyncio.create_task(self._stream(line))
        try:
            await self._output
        except asyncio.CancelledError:
            print(" [ended]", file=sys.stderr)
        finally:
            self._output = None

    async def _stream(self, line: Line) -> None:
        try:
            async for token in self._client.generate(
                line.prompt, **(self._defaults | line.parameters)
            ):
                sys.stdout.write(_printable(token["text"]))
                sys.stdout.flush()
        finally:
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _interrupt(self) -> None:
        """On Ctrl-C, end the output that is being written, if there is one."""
        if self._output is not None:
            self._output.cancel()
        elif self._is_terminal:
            print("\npress Ctrl-D to exit", file=sys.stderr)

    def _print_status(self, message: dict[str, Any]) -> None:
        if message.get("status") == "loading":
            print(f"loading {message['model']} ...", file=sys.stderr)
        elif message.get("status") == "queued" and message["ahead"]:
            print(f"{message['ahead']} requests are ahead of this one", file=sys.stderr)


async def run_terminal(url: str, *, api_key: str | None, label: str) -> int:
    """Connect and process stdin. Return the exit code: 1 if a prompt failed, 2 without a connection."""
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(connect(url, api_key=api_key, label=label))
        except (OSError, InvalidHandshake, InvalidURI, ValueError) as error:
            print(f"underglass: {_why_not_connected(url, error)}", file=sys.stderr)
            return 2
        terminal = Terminal(client)
        await terminal.run()
        return int(terminal.failed)


def _why_not_connected(url: str, error: Exception) -> str:
    """Return an error message that names the problem with --url or the server, and the fix."""
    if isinstance(error, (InvalidURI, ValueError)):  # ValueError: the port is out of range
        return f"--url must look like ws://localhost:8000, got {url!r}"
    if isinstance(error, OSError):
        reason = f" ({error.strerror})" if isinstance(error, socket.gaierror) else ""
        return (
            f"no server answers at {url}{reason}: start one with `underglass serve`, or give the "
            "address of another server with --url"
        )
    return f"the server at {url} rejected the connection: {error}"


async def _next_line(prompt: str) -> str | None:
    """Return a line of stdin, or None at its end. A daemon thread reads the line, so Ctrl-C works."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def read() -> None:
        try:
            text: str | None = input(prompt)
        except EOFError:
            text = None
        except Exception as error:  # for example, the line is not valid text
            loop.call_soon_threadsafe(line.set_exception, error)
            return
        loop.call_soon_threadsafe(line.set_result, text)

    threading.Thread(target=read, daemon=True).start()
    return await line


def _printable(text: str) -> str:
    """Remove control characters: a model's output must not control the terminal."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")
