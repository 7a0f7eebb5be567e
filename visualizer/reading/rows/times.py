"""Times of the rows: microseconds in the events, milliseconds in the rows."""

US_PER_MS = 1000


def in_ms(us: int | None) -> float | None:
    """Return a time in milliseconds; None stays None."""
    return None if us is None else us / US_PER_MS
