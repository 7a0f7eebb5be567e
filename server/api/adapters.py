"""Routes that load and unload LoRA adapters, as in vLLM; see `server/core/adapters.py`.

    POST /v1/load_lora_adapter    {"lora_name": "ada", "lora_path": "/adapters/ada"}
    POST /v1/unload_lora_adapter  {"lora_name": "ada"}

Both answer with a sentence. The statuses and texts are vLLM's
(`vllm/entrypoints/openai/models/serving.py`).
"""

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import PlainTextResponse, Response

from server.core.adapters import ALLOWED, may_be_updated, wrong_name
from server.core.models import Models
from server.core.settings import MAX_NAME_LENGTH
from server.http.bodies import JsonRoute
from server.http.errors import ApiError, bad_request
from server.http.fields import Strict

_MAX_PATH_LENGTH = 4096
DONE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A sentence.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


class LoadAdapterRequest(Strict):
    """A body for /v1/load_lora_adapter."""

    lora_name: str = Field(description="The name that requests give as their `model`.")
    lora_path: str = Field(
        max_length=_MAX_PATH_LENGTH,
        description="A directory of the server that PEFT's `save_pretrained` has written.",
    )
    load_inplace: bool = Field(
        False, description="Replace an adapter of this name; requests that use it keep its weights."
    )
    is_3d_lora_weight: Literal[False] = Field(
        False, description="true, for stacked matrices of experts, is not supported."
    )


class UnloadAdapterRequest(Strict):
    """A body for /v1/unload_lora_adapter."""

    lora_name: str = Field(description="The adapter's name in /v1/models.")
    lora_int_id: int | None = Field(None, description="A field of vLLM's; ignored here, as there.")


def routes(models: Models) -> APIRouter:
    """Return the routes. They answer with 404 unless the environment allows them."""
    router = APIRouter(route_class=JsonRoute, tags=["Adapters"])
    is_allowed = may_be_updated()

    def check_allowed() -> None:
        if not is_allowed:
            raise ApiError(
                404,
                f"adapters cannot be changed over HTTP: start the server with {ALLOWED}=1, if you "
                "trust every client with the server's files",
                code="not_found",
            )

    @router.post("/v1/load_lora_adapter", response_class=Response, responses=DONE)
    async def load_lora_adapter(body: LoadAdapterRequest) -> Response:
        """Load a LoRA adapter, so that requests can name it as their model.

        Only with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in the server's environment.
        """
        check_allowed()
        name, path = body.lora_name, body.lora_path
        if not name or not path:
            missing = "lora_path" if name else "lora_name"
            raise bad_request(missing, "Both 'lora_name' and 'lora_path' must be provided.")
        if wrong := wrong_name(name):
            raise bad_request("lora_name", f"lora_name {wrong}")
        async with models.changing_adapters() as bridge:
            if name in bridge.adapters and not body.load_inplace:
                raise bad_request(
                    "lora_name",
                    f"The lora adapter '{name}' has already been loaded. If you want to load the "
                    "adapter in place, set 'load_inplace' to True.",
                )
            if name not in bridge.adapters and name in models.names():
                raise bad_request(
                    "lora_name", f"The lora adapter '{name}' conflicts with a served base model."
                )
            await bridge.load_adapter(name, path)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    @router.post("/v1/unload_lora_adapter", response_class=Response, responses=DONE)
    async def unload_lora_adapter(body: UnloadAdapterRequest) -> Response:
        """Unload a LoRA adapter. Requests that use it keep it until they end.

        Only with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in the server's environment.
        """
        check_allowed()
        name = body.lora_name
        if not name:
            message = "'lora_name' needs to be provided to unload a LoRA adapter."
            raise bad_request("lora_name", message)
        async with models.changing_adapters() as bridge:
            if name not in bridge.adapters:
                raise ApiError(
                    404,
                    f"The lora adapter '{name[:MAX_NAME_LENGTH]}' cannot be found.",
                    param="lora_name",
                    code="adapter_not_found",
                )
            await bridge.unload_adapter(name)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    return router
