"""`underglass kv`: the bytes of KV that a token takes, and how many users fit."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from engine.models.byte_sizes import byte_size
from engine.models.configurations import CONFIGURATIONS
from engine.models.kv_sizes import KVSizeError, kv_sizes
from underglass.commands.options import fail


def kv(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="A config.json, a directory that has one, or the name of a known model.",
            show_default="all known models",
        ),
    ] = None,
    context: Annotated[int, typer.Option(help="Tokens of each user.", min=1)] = 8192,
    device_gb: Annotated[float, typer.Option(help="Memory of a device in GB.", min=0.001)] = 80,
    devices: Annotated[
        int | None,
        typer.Option(help="Number of devices.", min=1, show_default="what the weights need"),
    ] = None,
    kv_dtype: Annotated[str, typer.Option(help="bfloat16, fp8 or int8.")] = "bfloat16",
) -> None:
    """Print the bytes of KV of a token and of a user, and how many users fit beside the weights.

    Reads configurations only: no weights, no torch, no download.
    """
    rows = [("model", "kind", "B/token", "user", "weights", "devices", "users")]
    for name in models or CONFIGURATIONS:
        try:
            sizes = kv_sizes(_entries(name))
            fit = sizes.fit(device_gb * 1e9, context, kv_dtype=kv_dtype, devices=devices)
            one = byte_size(sizes.per_sequence(fit.context, kv_dtype))
            per_token, weights = f"{sizes.per_token(kv_dtype):,}", byte_size(sizes.weights)
        except KVSizeError as error:
            fail(f"{name}: {error}")
        rows.append((name, sizes.kind, per_token, one, weights, str(fit.devices), f"{fit.users:,}"))
    for name, kind, *numbers in rows:
        typer.echo(f"{name:22} {kind:5}" + "".join(f"{number:>10}" for number in numbers))
    typer.echo(
        f"\nA user has {context:,} tokens, or the model's longest context if that is less; 90 % of "
        f"{device_gb:g} GB per device"
    )


def _entries(name: str) -> dict[str, Any]:
    """Return the entries of the configuration with this name."""
    if name in CONFIGURATIONS:
        return CONFIGURATIONS[name].entries
    file = Path(name)
    file = file / "config.json" if file.is_dir() else file
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        fail(f"there is no file {file}; known models are {', '.join(CONFIGURATIONS)}")
    except (OSError, msgspec.DecodeError) as error:
        fail(f"{file}: {error}")
