"""How much a file or feed may ask for. Without limits, a damaged line could use up the memory."""

from collections.abc import Mapping

from engine.events import LogError

LAST = (
    50_000_000  # bytes of a long log to show, unpacked; as objects, they take twenty times as much
)
MAX_LINE = 16 << 20  # bytes of one line or message, unpacked
MAX_FIRST_LINE = 64 << 10  # bytes of the first line that a reader is shown to recognize a file
CHUNK = 1 << 18  # bytes read at a time; packed, they hold some MB
MAX_DROPPED = 256 << 20  # bytes of a file dropped onto the page, as it is sent
MAX_UNPACKED = 1 << 30  # bytes of a dropped file, unpacked
MAX_BLOCKS = 4_000_000  # a GPU of 192 GB has 750,000 blocks of a small model
MAX_SEATS = 100_000  # requests in one step
MAX_REQUESTS = 10_000_000  # requests of one run
MAX_PROMPT = 10_000_000  # tokens of one prompt


def check_settings(settings: Mapping[str, object]) -> None:
    """Raise LogError unless a log's numbers of blocks and seats are those that an engine can have."""
    for name, most in (("num_blocks", MAX_BLOCKS), ("max_batch_size", MAX_SEATS)):
        count = settings.get(name, 0)
        if not isinstance(count, int) or not 0 <= count <= most:
            raise LogError(f"{name} must be from 0 to {most}, got {count!r}")
