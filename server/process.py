"""A background server for a notebook, which stops when the notebook's kernel ends.

    with serve_in_background(token_budget=32) as server:
        Client(server.url).health()

The server runs in its own process, so a busy cell does not delay it, and interrupting a cell does not
stop it. The server watches its stdin: however the kernel ends, the pipe closes and the server stops.
"""

import atexit
import subprocess
import tempfile
import threading
from collections.abc import Sequence

from engine.core.declared import settings_of
from engine.core.extras import MissingExtraError
from server.core.settings import Start
from underglass import child

# The switches of `underglass serve` that are off by default and have no opposite.
SWITCHES = {"dry_run", "until_stdin_closes"} | {
    one.name for one in settings_of(Start) if one.extra.get("switch")
}
START_SECONDS = 300.0  # on a busy machine, Ray and its replicas need minutes
STOP_SECONDS = 40.0


class ServerError(RuntimeError):
    """The server did not start. The message is its output on standard error."""

    _render_traceback_ = MissingExtraError._render_traceback_


class BackgroundServer:
    """A running server process; `url` is its address."""

    def __init__(self, command: Sequence[str]) -> None:
        """Run `command` and wait until it prints its URL. Raises ServerError if it ends before that."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self.process = self._launch(command)
        atexit.register(self.stop)
        try:
            self.url = self._wait_for_url()
        except BaseException:  # including KeyboardInterrupt
            self.process.kill()
            self.stop()
            raise

    def _launch(
        self, command: Sequence[str], stdin: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child.environment(),
            start_new_session=True,  # interrupting the notebook must not interrupt the server
        )

    def stop(self) -> int:
        """Let running requests finish, stop the server and return its exit code.

        A second call does nothing.
        """
        atexit.unregister(self.stop)
        self._end()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return self.process.returncode

    def _end(self) -> None:
        """Ask the process to end, so that it ends its own processes, too; after a while, kill it."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def output(self) -> str:
        """Return what the server has written to standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def __enter__(self) -> "BackgroundServer":
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _wait_for_url(self) -> str:
        assert self.process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._end()

        timeout = threading.Timer(START_SECONDS, give_up)
        timeout.start()
        try:
            for line in self.process.stdout:  # ends when the process does
                head, found, address = line.decode().strip().partition(" at http://")
                if found and head.startswith("Underglass serves"):
                    return f"http://{address}"
        finally:
            timeout.cancel()
        said = self.output().strip() or "the server exited without a message"
        if late.is_set():
            said = f"the server did not start within {START_SECONDS:.0f} s. Its last output: {said}"
        raise ServerError(said)


def serve_in_background(model: str | None = None, **options: object) -> BackgroundServer:
    """Start `underglass serve` on a free port; return once it accepts requests.

    `options` are the command's options, such as `token_budget=32`, `policy="sjf"` or
    `chunked_prefill=False`. With `train=True`, a model is trained first and then served.
    Raises ServerError with the command's message if an option is invalid.
    """
    return BackgroundServer(child.python("underglass", *serve_arguments(model, **options)))


def serve_arguments(model: str | None = None, **options: object) -> list[str]:
    """Return the command's arguments for these options."""
    command = ["serve", "--port", "0", "--until-stdin-closes"]
    if model is not None:
        command += ["--model", model]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is True:
            command.append(f"--{flag}")
        elif value is False:
            command += [] if name in SWITCHES else [f"--no-{flag}"]
        else:
            command += [f"--{flag}", str(value)]
    return command
