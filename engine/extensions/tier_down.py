"""KV blocks on their way down: from the GPU to host memory, from there to disk, and out.

    write_back      a block moves down when it is evicted from the GPU
    write_through   a block is copied to all tiers when it has been computed

When a tier is full, its least recently used blocks make room: they move from host memory to disk, and
leave the disk for good. What a disk does not accept is dropped; see `tier_disk.py`.

Source: `prepare_store` in vLLM's `vllm/v1/kv_offload/cpu/manager.py` (what is stored, and what leaves);
`write_backup` in SGLang's `python/sglang/srt/mem_cache/hiradix_cache.py` (write-back).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.core.cache.prefix_cache import NO_REQUEST
from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.runner import PageStore
from engine.core.tokenizer import Tokenizer
from engine.extensions.tier_places import Places, Tier


@dataclass(slots=True)
class Down:
    """Fills the tiers, and makes room in them."""

    _config: EngineConfig
    _places: Places
    _pages: PageStore
    _tokenizer: Tokenizer
    _refused: str = ""  # why the disk did not take all blocks, when it was last asked

    @property
    def writes_through(self) -> bool:
        """Whether blocks are copied to all tiers as soon as they are computed."""
        return self._config.kv_write == "write_through"

    def store(
        self,
        tier: Tier,
        keys: list[bytes],
        blocks: list[int],
        tokens: Sequence[int],
        *,
        reason: v.MoveReason,
        request: int = NO_REQUEST,
    ) -> int:
        """Copy GPU blocks to a tier: the new ones, from the first on as far as there is room.

        `tokens` are those of the blocks. Returns the number of blocks that were copied.
        """
        size = self._config.block_size
        new = [index for index, key in enumerate(keys) if key not in tier.blocks]
        refused = self._refused
        room = self.make_room(tier, len(new), keys, whole=reason == "computed")
        if self._refused not in ("", refused) and tier is self._places.disk:
            lost, why = [blocks[index] for index in new[room:]], self._refused
            self._places.moved("gpu", "", "failed", lost, [], request=request, detail=why)
        new = new[:room]
        if not new:
            return 0
        numbers = [blocks[index] for index in new]
        data, page = self._pages.read_pages(numbers), self._pages.kv_format().page_bytes
        contents = [
            (
                keys[index],
                self._tokenizer.decode(list(tokens[index * size : (index + 1) * size])),
                data[at * page : (at + 1) * page],
            )
            for at, index in enumerate(new)
        ]
        self._put("gpu", tier, numbers, contents, reason=reason, request=request)
        return len(new)

    def make_room(
        self, tier: Tier, count: int, keep: Iterable[bytes], *, whole: bool = False
    ) -> int:
        """Let the least recently used blocks leave a tier; return for how many there is room.

        Blocks of `keep`, and those that are on their way up, stay. If that leaves no room for all and
        they are wanted as a `whole`, none leaves.
        """
        host, disk = self._places.tiers
        if not count or not tier.limit:
            return 0
        if tier is disk:
            accepted = self._places.io.accepted(count)
            self._refused = self._places.io.write_refusal if accepted < count else ""
            if not accepted:
                return 0
            count = accepted
        kept = {*keep, *self._places.fetching, *self._places.coming}
        room = tier.num_free + sum(key not in kept for key in tier.blocks)
        if whole and room < count:
            return 0
        count = min(count, room)
        leaving, refused, why = tier.leaving(count - tier.num_free, kept), self._refused, ""
        if tier is host and disk.limit and not self.writes_through:
            self._move_to_disk([key for key in leaving if key not in disk.blocks])
            why = "" if self._refused == refused else self._refused  # each reason is said once
        self._places.drop(tier, leaving, "room", why)
        return count

    def _move_to_disk(self, keys: list[bytes]) -> None:
        """Move blocks from host memory to disk, as far as the disk takes them."""
        host, disk = self._places.tiers
        keys = keys[: self.make_room(disk, len(keys), keys)]
        if keys:
            removed = [host.remove(key) for key in keys]
            contents = [(key, one.text, one.page) for key, one in zip(keys, removed, strict=True)]
            numbers = [one.slot for one in removed]
            self._put("host", disk, numbers, contents, reason="room")

    def _put(
        self,
        source: v.Tier,
        tier: Tier,
        numbers: list[int],
        contents: list[tuple[bytes, str, bytes]],
        *,
        reason: v.MoveReason,
        request: int = NO_REQUEST,
    ) -> None:
        """Add blocks to a tier with room for them: `contents` has key, text and page of each."""
        slots, host = list[int](), self._places.host
        for key, text, page in contents:
            slots.append(tier.put(key, text, page if tier is host else b""))
        texts = [text for _, text, _ in contents] if source == "gpu" else []
        self._places.moved(source, tier.name, reason, numbers, slots, request=request, texts=texts)
        if tier is not host:
            for key, _, page in contents:
                self._places.io.save(key, page)
            self.take_failures()

    def take_failures(self) -> None:
        """Drop the blocks that the disk could not write."""
        for key, reason in self._places.io.take_failures().items():
            self._places.drop(self._places.disk, [key], "failed", reason)
