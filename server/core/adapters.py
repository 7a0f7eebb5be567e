"""LoRA adapters of a server: those that it starts with, and those that clients load and unload.

    route --AddAdapter--> a thread of its own reads the files --> engine thread registers the matrices

Reading takes as long as the disk does, so no step waits for it. A step waits only while the matrices of
an adapter are put into a slot, when the first request that uses it is admitted.

The name of an adapter is a name of a model: a request uses the adapter that its `model` names. As soon
as a server has adapters, or may get some, it therefore serves only the names in `/v1/models`. Otherwise
a misspelt one would be answered by the base model.

Source: `OpenAIServingModels` in vLLM 0.32 (`vllm/entrypoints/openai/models/serving.py`).

Differs from vLLM in three ways. An adapter that cannot be used is the client's mistake (400) and not
the server's (500). Nothing is downloaded: a path is a directory of the server. New weights under an old
name (`load_inplace`) never find KV that the old weights computed.
"""

import json
import os
from typing import Any, NamedTuple

from engine.core.config import ConfigError
from engine.core.engine import Engine
from engine.extensions.adapters import AdapterError, HostAdapter, NoAdapterError, read
from server.core.commands import AddAdapter, LoadedAdapter, RemoveAdapter
from server.core.run_until import Refusal
from server.core.settings import MAX_NAME_LENGTH

ALLOWED = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"


class ReadAdapter(NamedTuple):
    """An adapter whose files have been read, or why it cannot be used."""

    add: AddAdapter
    weights: HostAdapter | None = None
    refusal: Refusal | None = None

    @property
    def reply(self) -> int:
        """The number of the command's answer."""
        return self.add.reply


def may_be_updated() -> bool:
    """Return whether clients may load and unload adapters: vLLM's environment variable allows it."""
    return os.environ.get(ALLOWED, "").strip().lower() in ("1", "true")


def read_adapter(engine: Engine, add: AddAdapter) -> ReadAdapter:
    """Read an adapter's files. Any thread may call this."""
    store = getattr(engine.runner, "adapters", None)
    try:
        return ReadAdapter(add, read(store, engine.config.max_loras, add.path))
    except NoAdapterError as error:
        told = f"Loading lora {add.name} failed: No adapter found for {add.path}: {error}"
        return ReadAdapter(add, refusal=Refusal(404, told, "adapter_not_found", "lora_path"))
    except AdapterError as error:
        return ReadAdapter(add, refusal=Refusal(400, str(error), param="lora_path"))
    except Exception as error:
        told = f"{add.path} cannot be read: {type(error).__name__}: {error}"
        return ReadAdapter(add, refusal=Refusal(500, told))


def change_adapters(
    engine: Engine, command: ReadAdapter | RemoveAdapter
) -> LoadedAdapter | int | Refusal:
    """Register or remove an adapter between two steps; return the command's reply."""
    try:
        if isinstance(command, RemoveAdapter):
            engine.adapters.remove(command.name)
            return engine.step_count
        if command.refusal is not None:
            return command.refusal
        name, path = command.add.name, command.add.path
        return _loaded(engine.adapters.add(name, path, replace=True, weights=command.weights))
    except AdapterError as error:
        return Refusal(400, str(error), param="lora_name")


def loaded_adapters(engine: Engine) -> list[LoadedAdapter]:
    """Return what the engine has."""
    has_some = "adapters" in vars(engine)  # asking for them would set them up
    return [_loaded(one) for one in engine.adapters.registered.values()] if has_some else []


def _loaded(adapter: Any) -> LoadedAdapter:
    return LoadedAdapter(adapter.name, adapter.path, adapter.key)


def lora_module(text: str, base_names: tuple[str, ...] = ()) -> tuple[str, str]:
    """Return the name and the path of an adapter: `name=path`, or vLLM's JSON object.

    base_names  the names of the model, once they are known

    Raises ConfigError.
    """
    base = None
    if "=" in text and "," not in text:
        name, _, path = text.partition("=")
    else:
        try:
            entries = json.loads(text)
            name, path = entries.pop("name"), entries.pop("path")
            base = entries.pop("base_model_name", None)
            if entries.pop("is_3d_lora_weight", False) or entries:
                raise ValueError("further entries are not supported")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise ConfigError(
                'lora_modules must be name=path or {"name": ..., "path": ...}, got '
                f"{text[:200]!r} ({type(error).__name__}: {error})"
            ) from error
    if not all(isinstance(one, str) and one for one in (name, path)) or wrong_name(name):
        raise ConfigError(f"lora_modules needs a name and a path, got {text[:200]!r}")
    if base is not None and base_names and base not in base_names:
        raise ConfigError(
            f"lora_modules: base_model_name of {name} is {base!r}, but the model is {base_names[0]!r}"
        )
    if name in base_names:
        raise ConfigError(f"lora_modules: {name!r} is the name of the model: choose another one")
    return name, path


def wrong_name(name: str) -> str:
    """Return what is wrong with the name of an adapter, or ""."""
    if len(name) > MAX_NAME_LENGTH or not name.isprintable():
        return f"must have at most {MAX_NAME_LENGTH} printable characters, got {name[:60]!r}"
    return ""
