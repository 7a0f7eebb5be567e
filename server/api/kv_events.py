"""/kv_event_sources: the addresses at which routers subscribe to the KV events.

Source: vLLM 0.32, `vllm/entrypoints/serve/instrumentator/basic.py`; the fields are those of its
`KVEventsConfig`. Differs from vLLM: the addresses are the bound ones, so they contain no wildcard.
"""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from server.core.models import Models


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


def routes(models: Models) -> APIRouter:
    """Return the route /kv_event_sources."""
    router = APIRouter(tags=["Operation"])

    @router.get("/kv_event_sources")
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
