"""Limits on the size of a file or feed. Without them, a damaged line could use up the memory."""

from collections.abc import Mapping

from engine.core.log import LogError

LAST = 50_000_000  # unpacked bytes of a long log to show; its events take 20 times as much memory
MAX_LINE = 16 << 20  # bytes of one line or message, unpacked
MAX_FIRST_LINE = 64 << 10  # bytes of a file's first line that `Reader.recognizes` gets
CHUNK = 1 << 18  # bytes read at a time; if they are gzipped, they unpack to a few MB
MAX_DROPPED = 256 << 20  # bytes of a file dropped onto the page, before unpacking
MAX_UNPACKED = 1 << 30  # bytes of a dropped file, after unpacking
MAX_BLOCKS = 4_000_000  # for comparison: a 192 GB GPU has 750,000 blocks for a small model
MAX_SEATS = 100_000  # requests in one step
MAX_REQUESTS = 10_000_000  # requests of one run
MAX_PROMPT = 10_000_000  # tokens of one prompt


def check_settings(settings: Mapping[str, object]) -> None:
    """Raise LogError if a log's number of blocks or its batch size is impossible."""
    for name, most in (("num_blocks", MAX_BLOCKS), ("max_batch_size", MAX_SEATS)):
        count = settings.get(name, 0)
        if not isinstance(count, int) or not 0 <= count <= most:
            raise LogError(f"{name} must be from 0 to {most}, got {count!r}")
