"""The server's own settings; the engine's are in `engine/config.py`."""

import re

import msgspec

from engine.config import ConfigError

_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the server listens, whom it lets in and how much it holds.

    model_name       what `/v1/models` calls the model
    host             address or name that the server listens on
    allowed_hosts    further names it is known by; another `Host` is refused
    cors_origins     sites whose pages may use it, as "https://example.org"; "*" for all
    api_key          where set, every route but /health, /ready and the pages asks for it
    max_waiting      requests in the queue beyond which new ones get 429
    max_waiting_tokens  the same in tokens: prompts, and all output they may have
    chat_max_tokens  cap on a chat answer for which the client names none
    log_window       events that /trace returns and a feed can catch up on
    buffer_bytes     unsent output of one stream beyond which its reader is cut off
    stall_seconds    seconds a client may accept nothing at all, or take to send a body, before it is
                     cut off
    keep_alive       seconds of silence in a stream after which a comment is sent
    drain_seconds    seconds that running requests get to finish once the server is told to stop
    stuck_seconds    seconds in one step after which whoever waits is told that the engine hangs
    """

    model_name: str = "bundled"
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    api_key: str | None = None
    max_waiting: int = 256
    max_waiting_tokens: int = 1 << 18
    chat_max_tokens: int = 256
    log_window: int = 50_000
    buffer_bytes: int = 1 << 20
    stall_seconds: float = 60.0
    keep_alive: float = 15.0
    drain_seconds: float = 30.0
    stuck_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raise ConfigError, which names the field, for what could never match or let everybody in."""
        if not self.host:  # to the system, that is every address there is
            raise ConfigError("host must be an address or a name; 0.0.0.0 lets other machines in")
        if self.api_key is not None and not _KEY.fullmatch(self.api_key):
            raise ConfigError(
                "api_key must be of ASCII's letters, digits and signs, and neither empty nor with "
                "a space at an end: a header has to carry it"
            )
        for name in self.allowed_hosts:
            if not _HOST.fullmatch(name):
                raise ConfigError(f"allowed_host must be a name like lab.example.org, got {name!r}")
        for origin in self.cors_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"cors_origin must be like https://example.org, in small letters and without a "
                    f"path, or *, got {origin!r}"
                )
