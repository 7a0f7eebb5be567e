"""KV between servers: /kv/export and /kv/adopt, and /kv_event_sources.

A gateway moves the KV of a prompt from one replica to another with the first two routes.

Only a gateway with the cluster's key may use these routes, because exported pages contain a client's
text and adopted pages decide what the model reads. `server/core/kv_transfer.py` describes the body.

/kv_event_sources tells routers where to subscribe to the KV events. Its source is vLLM 0.32
(`vllm/entrypoints/serve/instrumentator/basic.py`). Differs from vLLM: the addresses are the bound ones,
so they contain no wildcard.

Differs from production: NIXL and Mooncake copy memory from machine to machine (RDMA) while later
layers are still being computed. Here the gateway forwards one HTTP body.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from server.core.commands import AdoptKV, DescribeKV, ExportKV
from server.core.kv_transfer import (
    MEDIA_TYPE,
    decode_pages,
    encode_pages,
    max_body_bytes,
)
from server.core.models import Models, ViewedModel
from server.core.settings import MAX_NAME_LENGTH, ServerSettings
from server.http.access import check_allowed
from server.http.bodies import UNLIMITED_PATH, read_limited
from server.http.errors import ApiError, bad_request
from server.http.fields import Strict


class ExportRequest(Strict):
    """A body for /kv/export."""

    tokens: Annotated[list[int], Field(fail_fast=True)] = Field(
        description="The prefix, as token ids. If its last block is not full, that block is left out."
    )
    first: int = Field(
        0, ge=0, description="Number of leading blocks that the receiver already has."
    )


class Adopted(BaseModel):
    """How many of the sent pages entered the prefix cache."""

    blocks: int = Field(description="Number of blocks that entered the prefix cache.")
    sent: int = Field(description="Number of pages in the body.")
    bytes: int = Field(description="Size of the pages in bytes.")


class KVEventSource(BaseModel):
    """A publisher of KV events, with the field names of vLLM's `KVEventsConfig`."""

    enable_kv_cache_events: bool
    publisher: str
    endpoint: str = Field(description="The address of the PUB socket.")
    replay_endpoint: str = Field(description="The address of the ROUTER socket for replays.")
    buffer_steps: int = Field(description="Number of batches that can be replayed.")
    hwm: int = Field(description="Number of batches that may wait for a slow subscriber.")
    max_queue_size: int = Field(description="Equal to `hwm`, because there is no other queue.")
    topic: str


_PAGES: dict[str, Any] = {
    "description": "The pages; see `server/core/kv_transfer.py`.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
}


def routes(models: Models) -> APIRouter:
    """Return the routes for the loaded models."""
    router = APIRouter()
    settings = models.settings

    @router.post("/kv/export", tags=["Cluster"], response_class=Response, responses={200: _PAGES})
    async def export(request: Request, body: ExportRequest, model: ViewedModel = None) -> Response:
        """Return the KV pages of the cached prefix of `tokens`; no pages if none of it is cached."""
        _check_is_gateway(request, settings)
        with models.commanded(model) as bridge:
            exported = await bridge.ask(ExportKV(0, body.tokens, body.first))
        return Response(encode_pages(exported, body.tokens), media_type=MEDIA_TYPE)

    @router.post(UNLIMITED_PATH, tags=["Cluster"])
    async def adopt(
        request: Request,
        source: Annotated[
            str,
            Query(
                max_length=MAX_NAME_LENGTH,
                description="The replica that computed the pages, for the event log.",
            ),
        ] = "another replica",
        model: ViewedModel = None,
    ) -> Adopted:
        """Put pages that /kv/export returned into the prefix cache, as many as fit."""
        _check_is_gateway(request, settings)
        with models.commanded(model) as bridge:
            layout = await bridge.ask(DescribeKV(0))
            limit, seconds = max_body_bytes(layout), settings.stall_seconds
            body = await read_limited(request.scope, request.receive, limit, seconds)
            if body is None:  # the gateway has gone; the error is for the log of requests
                raise bad_request(None, "the body is cut off: send all of it", "kv_truncated")
            header, pages = decode_pages(body, layout, bridge.tokenizer.vocab_size)
            command = AdoptKV(0, header.tokens, header.first, pages, source)
            blocks = await bridge.ask(command)
        return Adopted(blocks=blocks, sent=header.blocks, bytes=len(pages))

    @router.get("/kv_event_sources", tags=["Operation"])
    async def kv_event_sources() -> dict[int, KVEventSource]:
        """Return the publisher of KV events under its rank, 0; an empty object without --kv-events."""
        source = models.first.client.kv_source
        if source is None:
            return {}
        published = KVEventSource(
            enable_kv_cache_events=True,
            publisher="zmq",
            endpoint=source.endpoint,
            replay_endpoint=source.replay_endpoint,
            buffer_steps=source.batches,
            hwm=source.unsent,
            max_queue_size=source.unsent,
            topic=source.topic,
        )
        return {0: published}

    return router


def _check_is_gateway(request: Request, settings: ServerSettings) -> None:
    """Raise ApiError (403) unless the client has the cluster's key."""
    if settings.cluster_key is None:
        raise ApiError(
            403,
            "KV moves between replicas only: start this server with --cluster-key",
            type="permission_error",
            code="cluster_key",
        )
    check_allowed(request, settings)
