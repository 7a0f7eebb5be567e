"""`underglass lmtp`: talk to a server by hand.

    > Once upon a time                             the prompt; its answer streams
    > max_tokens=20 temperature=0.8 Once upon      words name=value set parameters, for this prompt
    > max_tokens=20                                and, without a prompt, from now on
    > keep=tale Once upon a time                   parameters are GENERATE's: here, keep it in a buffer
    > from=tale The end of it:                     and go on after it
    > release=tale                                 forget the buffer

Ctrl-C ends an answer, Ctrl-D the client. Lines may also come from a pipe; then the answers are all that
is written to stdout.
"""

import asyncio
import re
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any

import msgspec
from websockets.exceptions import InvalidHandshake, InvalidURI

from server.api.lmtp.calls import GenerateCall
from server.api.lmtp.client import Client, StreamError, connect

MAX_TOKENS = 64
PARAMETERS = {field.encode_name for field in msgspec.structs.fields(GenerateCall)}
PARAMETERS -= {"stream_id", "prompt"}
# Ends an error line when the same request may succeed later.
RETRY_HINT = " (may work if sent again)"

_PARAMETER = re.compile(r'(?:^|(?<=\s))([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|\S*)(?:\s+|$)')


@dataclass(frozen=True, slots=True)
class Line:
    """What somebody typed, read."""

    prompt: str
    parameters: dict[str, Any]


class LineError(ValueError):
    """A line cannot be read. The message says what to write instead."""


def parse_line(text: str) -> Line:
    """Words name=value are parameters, the rest is the prompt.

    A prompt in double quotes is taken as it is, for text like "x=5". Raises LineError for a word whose
    name is not a parameter.
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
                f'a prompt with "=" in it goes into double quotes'
            )
        parameters[name] = _value(value)
    rest = _PARAMETER.sub("", text).strip()
    return Line(rest if prompt is None else str(prompt), parameters)


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.strip('"') if len(text) > 1 and text[0] == text[-1] == '"' else text


class Conversation:
    """Reads lines and streams answers until there are no more lines.

    `failed` says whether any prompt got an error instead of its answer.
    """

    def __init__(self, client: Client) -> None:
        self.failed = False
        self._client = client
        self._client.on_message = self._tell
        self._defaults: dict[str, Any] = {"max_tokens": MAX_TOKENS}
        self._answering: asyncio.Task[None] | None = None
        self._is_terminal = sys.stdin.isatty()

    async def run(self) -> None:
        """Until the end of stdin."""
        prompt = "> " if self._is_terminal else ""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        while (text := await _next_line(prompt)) is not None:
            try:
                line = parse_line(text)
                if "release" in line.parameters:
                    await self._client.release(str(line.parameters["release"]))
                elif line.prompt:
                    await self._answer(line)
                elif line.parameters:
                    self._defaults |= line.parameters
            except (LineError, StreamError) as error:
                self.failed = True
                again = RETRY_HINT if getattr(error, "retry", False) else ""
                print(f"underglass: {error}{again}", file=sys.stderr)
                if getattr(error, "code", "") == "connection_lost":
                    return

    async def _answer(self, line: Line) -> None:
        self._answering = asyncio.create_task(self._stream(line))
        try:
            await self._answering
        except asyncio.CancelledError:
            print(" [ended]", file=sys.stderr)
        finally:
            self._answering = None

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
        """Ctrl-C: end the answer that is being written, if there is one."""
        if self._answering is not None:
            self._answering.cancel()
        elif self._is_terminal:
            print("\nCtrl-D leaves", file=sys.stderr)

    def _tell(self, message: dict[str, Any]) -> None:
        if message.get("status") == "loading":
            print(f"loading {message['model']} ...", file=sys.stderr)
        elif message.get("status") == "queued" and message["ahead"]:
            print(f"{message['ahead']} in line before it", file=sys.stderr)


async def talk(url: str, *, api_key: str | None, label: str) -> int:
    """Connect and talk; returns the exit code. 1: a prompt failed. 2: no connection, said on stderr."""
    try:
        async with connect(url, api_key=api_key, label=label) as client:
            conversation = Conversation(client)
            await conversation.run()
            return int(conversation.failed)
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
        print(f"underglass: no LMTP at {url}: {error}", file=sys.stderr)
        return 2


async def _next_line(prompt: str) -> str | None:
    """A line of stdin, None at its end. Read on a daemon thread, which nobody has to wait for."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def read() -> None:
        try:
            text: str | None = input(prompt)
        except EOFError:
            text = None
        except Exception as error:  # it is no text, say
            loop.call_soon_threadsafe(line.set_exception, error)
            return
        loop.call_soon_threadsafe(line.set_result, text)

    threading.Thread(target=read, daemon=True).start()
    return await line


def _printable(text: str) -> str:
    """Without what a terminal would obey: a model's text is text."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")
