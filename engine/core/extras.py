"""The libraries that a plain `pip install underglass` leaves out, and the error for a missing one.

The core needs msgspec, and typer for its console command; every other library belongs to an extra. A
module imports such a library where it is used, or at the top if the whole module is about it. Where
the code of a user imports such a module, the error says in one line what to install:

    with needs_extra("Engine.load"):
        loader = importlib.import_module("engine.models.loader")
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

# The extras in pyproject.toml, and the modules that each one installs.
_MODULES = {
    "model": "gguf huggingface_hub jinja2 llguidance numpy safetensors tokenizers torch tqdm",
    "server": "fastapi httptools prometheus_client psutil segno starlette uvicorn websockets",
    "lab": "IPython anywidget httpx httpx_sse ipywidgets jupyterlab nbformat pandas plotly traitlets",
    "gateway": "aiohttp",
    "cluster": "ray",
    "kv-events": "zmq",
    "spans": "opentelemetry",
    "pictures": "playwright",
}
EXTRA_OF = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}


class MissingExtraError(ModuleNotFoundError):
    """A library or the front end is missing. The message says how to install or build it."""

    def _render_traceback_(self) -> list[str]:
        """Show a notebook the message alone; IPython asks for it, and otherwise prints all source."""
        return [f"{type(self).__name__}: {self}"]


@contextmanager
def needs_extra(what: str, extra: str = "") -> Iterator[None]:
    """Turn the failed import of an optional library into a MissingExtraError about `what`.

    extra  the one to install, where a library is in several
    """
    try:
        yield
    except MissingExtraError:
        raise
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRA_OF:
            raise
        raise MissingExtraError(
            f"{what} needs {library}: {install_command(extra or EXTRA_OF[library])}",
            name=error.name,
        ) from None


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this copy: pip takes it from where it took the copy.

    A clone, a wheel and a repository are each named as pip has recorded them (PEP 610). Only a copy
    from a package index has no such record, and its name alone is enough.
    """
    import json  # these take longer to import than the core, which rarely needs them
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    clone = Path(__file__).parents[2]
    try:
        record = json.loads(
            metadata.distribution("underglass").read_text("direct_url.json") or "{}"
        )
    except metadata.PackageNotFoundError:  # a clone that was never installed
        record = {"url": clone.as_uri()} if (clone / "pyproject.toml").is_file() else {}
    url = record.get("url", "")
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        place = "." if path == Path.cwd() else path
        return f"pip install '{place}[{extra}]'"
    if "vcs_info" in record:
        url = f"{record['vcs_info']['vcs']}+{url}"
    return f"pip install 'underglass[{extra}]{url and f' @ {url}'}'"


def extension(name: str) -> ModuleType:
    """Return a module of `engine/extensions`."""
    return importlib.import_module(f"engine.extensions.{name}")
