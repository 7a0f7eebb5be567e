"""What a server says when it is ready: where everything is, and a command that can be pasted."""

import shlex
import socket
from pathlib import Path

from server.core.settings import ServerSettings
from server.http.access import is_loopback

_BANNER = """\
Underglass serves {model} at {url}

  curl -N {url}/v1/completions -H 'Content-Type: application/json'{key} \\
       -d '{{"prompt": "Once upon a time", "max_tokens": 50}}'

  watch it live      {url}/
  OpenAI's clients   {url}/v1 is the base_url
  LMQL's client      {socket}/ speaks LMTP
  what it is doing   {url}/health and {url}/metrics
  its event log      {url}/trace
  every route        {url}/docs
"""


def banner(settings: ServerSettings, url: str, model_dir: Path | None = None) -> str:
    """The text; `url` is where this machine reaches the server, `model_dir` holds further models."""
    header = f"Authorization: Bearer {settings.api_key}"
    text = _BANNER.format(
        model=settings.model_name,
        url=url,
        socket=url.replace("http://", "ws://", 1),
        key=f" -H {shlex.quote(header)}" if settings.api_key else "",
    )
    if model_dir is not None:
        text += f"  further models     {url}/v1/models lists those of {model_dir}\n"
    if is_loopback(settings.host):
        return text
    port = url.rpartition(":")[2]
    address = _address_for_others() if settings.host == "0.0.0.0" else None
    if address is not None:
        text += f"  from elsewhere     http://{address}:{port}/\n"
    if settings.api_key is None:
        text += "\nWhoever reaches this machine can use the model; --api-key asks for a key.\n"
    return text


def _address_for_others() -> str | None:
    """This machine's address in its network. Nothing is sent: UDP only looks up the way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))  # an address that belongs to nobody (RFC 5737)
        except OSError:
            return None
        return str(way.getsockname()[0])
