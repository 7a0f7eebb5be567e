"""The server's settings, and its fixed limits. The engine's settings are in `engine/core/config.py`."""

import re

import msgspec

from engine.core.config import ConfigError

# Upper bounds on a request's fields, for every API. A field is bounded here if a larger value would be
# useless or would slow down every other request: the engine thread searches for each stop string after
# every token, and names are written to the log. The engine itself checks whether a request fits into
# its memory, batch and context.
MAX_NAME_LENGTH = 256
MAX_STOPS = 64
MAX_STOP_LENGTH = 256
MAX_STOP_TOKENS = 1024
# vLLM's limits in its newer model runner (MAX_NUM_LOGIT_BIAS_TOKENS and MAX_NUM_ALLOWED_TOKEN_IDS in
# vllm/v1/worker/gpu/sample/logit_bias.py).
MAX_BIASES = 1024
MAX_TOOLS = 128  # OpenAI's limit
MAX_ALLOWED_TOKENS = 1024
# Choices of one request: samples of all prompts. Each may be a request of its own in the queue.
MAX_CHOICES = 1024

# The log is JSON, and its readers support 64-bit integers.
LARGEST_WHOLE = 2**63 - 1
LARGEST_COUNT = 2**31 - 1

_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?")
TOOL_CALL_PARSERS = ("hermes", "llama3_json", "llama4_json", "mistral")
DRAFTERS = ("prompt-lookup",)
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server's address, access rules and limits.

    model_name       the model's name in `/v1/models`
    served_names     the only names that requests may use for this model; empty: every name
    host             address or name that the server listens on
    allowed_hosts    additional `Host` names to accept; others get 403
    cors_origins     sites whose pages may use the server, such as "https://example.org"; "*" for all
    api_key          if set, every route requires it except /health, /ready and the pages
    cluster_key      if set, only a gateway that sends this key may control the engine
    max_waiting      maximum number of waiting requests; beyond it, new ones get 429
    max_waiting_tokens  the same limit in tokens: prompts plus their maximum output
    chat_max_tokens  output limit for chat requests that do not set one
    tool_call_parser  format of the model's tool calls; None recognises it by the chat template
    trace_text       "off" leaves names and texts out of the event log; see `without_text.py`
    log_window       number of recent events that /trace returns and a feed can catch up on
    buffer_bytes     maximum unsent output of one stream; beyond it, the reader is cut off
    stall_seconds    how long a client may accept no data, or take to send a body, before it is cut off
    keep_alive       seconds without output after which a stream sends a comment
    drain_seconds    how long running requests may continue after the server is told to stop
    stuck_seconds    how long a step may take before the requests that wait for it are failed
    """

    model_name: str = "bundled"
    served_names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    api_key: str | None = None
    cluster_key: str | None = None
    max_waiting: int = 256
    max_waiting_tokens: int = 1 << 18
    chat_max_tokens: int = 256
    tool_call_parser: str | None = None
    trace_text: str = "on"
    log_window: int = 50_000
    buffer_bytes: int = 1 << 20
    stall_seconds: float = 60.0
    keep_alive: float = 15.0
    drain_seconds: float = 30.0
    stuck_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that can never match or that would admit every client."""
        if not self.host:  # the operating system would listen on every address
            raise ConfigError(
                "host must be an address or a name; use 0.0.0.0 to admit other machines"
            )
        if self.trace_text not in ("on", "off"):
            raise ConfigError(f"trace_text must be on or off, got {self.trace_text!r}")
        if self.tool_call_parser not in (None, *TOOL_CALL_PARSERS):
            names = ", ".join(TOOL_CALL_PARSERS)
            raise ConfigError(
                f"tool_call_parser must be one of {names}, got {self.tool_call_parser!r}"
            )
        for name, key in (("api_key", self.api_key), ("cluster_key", self.cluster_key)):
            if key is not None and not _KEY.fullmatch(key):
                raise ConfigError(
                    f"{name} must be printable ASCII, must not be empty, and must not start or end "
                    "with a space, because it is sent in a header"
                )
        for name in self.served_names:
            # An environment variable has several names with spaces between them.
            if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable() or " " in name:
                raise ConfigError(
                    f"served_model_name must have 1 to {MAX_NAME_LENGTH} printable characters and no "
                    f"spaces, got {name[:60]!r}"
                )
        for name in self.allowed_hosts:
            if not _HOST.fullmatch(name):
                raise ConfigError(f"allowed_host must be a name like lab.example.org, got {name!r}")
        for origin in self.cors_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    "cors_origin must look like https://example.org, in lower case and without a path, "
                    f"or *, got {origin!r}"
                )
