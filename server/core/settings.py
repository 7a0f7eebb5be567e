"""The server's settings, and its fixed limits.

Each setting is declared once, as in `engine/core/config.py`. A field declared with `setting` is an
option of `underglass serve`, in the section that it names, otherwise in its struct's. `shown` describes
its default, and a `switch` has no opposite.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from engine.core.config import ConfigError
from engine.core.declared import setting, wrong_field

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
_DAY = 86_400  # the longest time to set, in seconds; timers need a finite limit
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The model to serve, the port, and the files to write.

    until_stdin_closes  whether to stop when the parent process closes stdin or dies
    """

    model: str
    train_steps: int | None = None
    until_stdin_closes: bool = False
    model_dir: Annotated[
        Path | None,
        setting(
            "With --model auto: a directory of model directories and GGUF files; each model is loaded "
            "when a request names it.",
        ),
    ] = None
    max_models: Annotated[
        int,
        setting(
            "With --model auto: how many of these models can be loaded at once.",
            ge=1,
        ),
    ] = 2
    lora_modules: Annotated[
        tuple[str, ...],
        setting(
            "A LoRA adapter that requests can name as their model: name=path of a directory that PEFT "
            "has saved, or vLLM's JSON form. Repeatable.",
            vllm="`--lora-modules`",
            sglang="`--lora-paths`",
        ),
    ] = ()
    drafter: Annotated[
        Literal["prompt-lookup"] | None,
        setting(
            "Guess the next tokens, and verify them in one forward pass: prompt-lookup finds them in "
            "the text so far.",
            shown="none",
        ),
    ] = None
    draft_model: Annotated[
        str | None,
        setting(
            "Let a smaller model with the same vocabulary guess: a directory, a GGUF file or "
            "owner/name.",
            shown="none",
        ),
    ] = None
    draft_length: Annotated[
        int,
        setting(
            "With --drafter or --draft-model: how many tokens to guess per step.",
            ge=1,
        ),
    ] = 4
    train: Annotated[
        bool,
        setting(
            "Train a small NanoGPT on stories first (about ten seconds) and serve it.", switch=True
        ),
    ] = False
    dtype: Annotated[
        str,
        setting(
            "Precision of weights, KV and computation: auto, float32, bfloat16 or float16. auto is the "
            "checkpoint's own where the device computes it natively, otherwise float32.",
        ),
    ] = "auto"
    device: Annotated[
        str, setting("Where the model computes: cpu, cuda or mps. Only cpu could be tested.")
    ] = "cpu"
    port: Annotated[
        int, setting("Port to listen on; 0 picks a free one.", ge=0, le=65535, section="Server")
    ] = 8000
    one_process: Annotated[
        bool,
        setting(
            "Run the engine in the server's own process, to read and debug it; slower under load.",
            switch=True,
            section="Server",
        ),
    ] = False
    paused: Annotated[
        bool,
        setting(
            "Start with the engine paused: requests wait until it is resumed.",
            section="Engine",
            switch=True,
        ),
    ] = False
    trace_file: Annotated[
        Path | None,
        setting(
            "Write the whole event log to this file; an existing file is replaced. After a restart of "
            "the engine, the new run is logged to a new file: after run.jsonl come run-2.jsonl, "
            "run-3.jsonl, ... Of several replicas, the gateway writes the log; it replaces no file.",
            section="Event log",
        ),
    ] = None
    kv_events: Annotated[
        str | None,
        setting(
            "Publish the prefix cache's changes as vLLM's KV events, for routers: a port, or "
            "tcp://ADDRESS:PORT; replays are on the next port. Subscribers see all token ids and cache "
            "salts, and need no key.",
            section="Event log",
            vllm="`--kv-events-config` with `endpoint` and `replay_endpoint`",
            sglang="`--kv-events-config`",
        ),
    ] = None
    kv_events_topic: Annotated[
        str,
        setting(
            "Topic of the KV events; subscribers filter by its beginning.", section="Event log"
        ),
    ] = ""
    request_log: Annotated[
        str,
        setting(
            "Where to log one line per request: stderr, off, or a file to append to.",
            section="Event log",
        ),
    ] = "stderr"

    def __post_init__(self) -> None:
        if wrong := wrong_field(self):
            raise ConfigError(" ".join(wrong))


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server's address, access rules and limits.

    model_name     the model's name in `/v1/models`
    buffer_bytes   maximum unsent output of one stream; beyond it, the reader is cut off
    stall_seconds  how long a client may accept no data, or take to send a body, before it is cut off
    keep_alive     seconds without output after which a stream sends a comment
    """

    model_name: str = "bundled"
    buffer_bytes: int = 1 << 20
    stall_seconds: float = 60.0
    keep_alive: float = 15.0
    served_model_name: Annotated[
        tuple[str, ...],
        setting(
            "The name of the model in the API; requests for another name get 404. Repeatable: answers "
            "show the first name.",
            section="Model",
            shown="the model's own name, and requests may use any",
        ),
    ] = ()
    host: Annotated[
        str, setting("Address to listen on; 0.0.0.0 accepts connections from other machines.")
    ] = "127.0.0.1"
    api_key: Annotated[
        str | None, setting("Require this key on all routes except /health, /ready and the pages.")
    ] = None
    cluster_key: Annotated[
        str | None,
        setting(
            "Accept controls only from the gateway that has this key; on a gateway, the key it sends. "
            "Better set as UNDERGLASS_CLUSTER_KEY."
        ),
    ] = None
    allowed_host: Annotated[
        tuple[str, ...], setting("Additional Host name to accept; others get 403. Repeatable.")
    ] = ()
    cors_origin: Annotated[
        tuple[str, ...],
        setting(
            "A site whose pages may use the API, such as https://example.org; * allows all. Repeatable."
        ),
    ] = ()
    max_waiting: Annotated[
        int,
        setting(
            "Maximum number of waiting requests; beyond it, new ones get 429.",
            ge=1,
            vllm="`--max-num-queued-reqs` (counts running requests, too; no limit by default)",
            sglang="`--max-queued-requests` (no limit by default)",
        ),
    ] = 256
    max_waiting_tokens: Annotated[
        int,
        setting(
            "The same limit in tokens, counting prompts and their maximum outputs.",
            ge=1,
            vllm="`--max-num-queued-tokens` (prompt tokens in prefill)",
        ),
    ] = 1 << 18
    chat_max_tokens: Annotated[
        int, setting("max_tokens for chat requests that do not set it.", ge=1)
    ] = 256
    tool_call_parser: Annotated[
        Literal["hermes", "llama3_json", "llama4_json", "mistral"] | None,
        setting(
            "How the model writes tool calls: hermes, llama3_json, llama4_json or mistral.",
            shown="recognised by the chat template",
        ),
    ] = None
    drain_seconds: Annotated[
        float,
        setting(
            "Seconds that running requests have to finish after SIGTERM or Ctrl-C.", ge=0, le=_DAY
        ),
    ] = 30.0
    stuck_seconds: Annotated[
        float,
        setting("Seconds that a step may take; after that, all requests fail.", ge=0, le=_DAY),
    ] = 60.0
    log_window: Annotated[
        int,
        setting(
            "Number of recent events kept for /trace and live viewers.",
            ge=1,
            le=LARGEST_COUNT,
            section="Event log",
        ),
    ] = 50_000
    trace_text: Annotated[
        Literal["on", "off"],
        setting(
            "on, or off: leave names and texts out of the event log, the page and the request log.",
            section="Event log",
        ),
    ] = "on"

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that can never match or that would admit every client."""
        if wrong := wrong_field(self):
            raise ConfigError(" ".join(wrong))
        if not self.host:  # the operating system would listen on every address
            raise ConfigError(
                "host must be an address or a name; use 0.0.0.0 to admit other machines"
            )
        for name, key in (("api_key", self.api_key), ("cluster_key", self.cluster_key)):
            if key is not None and not _KEY.fullmatch(key):
                raise ConfigError(
                    f"{name} must be printable ASCII, must not be empty, and must not start or end "
                    "with a space, because it is sent in a header"
                )
        for name in self.served_model_name:
            # An environment variable has several names with spaces between them.
            if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable() or " " in name:
                raise ConfigError(
                    f"served_model_name must have 1 to {MAX_NAME_LENGTH} printable characters and no "
                    f"spaces, got {name[:60]!r}"
                )
        for name in self.allowed_host:
            if not _HOST.fullmatch(name):
                raise ConfigError(f"allowed_host must be a name like lab.example.org, got {name!r}")
        for origin in self.cors_origin:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    "cors_origin must look like https://example.org, in lower case and without a path, "
                    f"or *, got {origin!r}"
                )
