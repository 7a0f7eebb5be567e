"""Format durations as the board does (`visualizer/frontend/src/model/duration.ts`)."""

from decimal import ROUND_HALF_UP, Context, Decimal

DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)


def duration(ms: float) -> str:
    """Format a duration like "35.1 s" or "120 ms", with three significant digits.

    From 1000 s on, the words are "16 min 40 s" or "2 h 5 min 9 s".
    """
    shown = DIGITS.create_decimal_from_float(ms)
    if shown < 1000:
        return f"{shown.normalize():,f} ms"
    seconds = int(Decimal(ms / 1000).quantize(Decimal(1), ROUND_HALF_UP))
    if seconds < 1000:
        return f"{DIGITS.create_decimal_from_float(ms / 1000).normalize():,f} s"
    hours, rest = divmod(seconds, 3600)
    return f"{hours} h " * (hours > 0) + f"{rest // 60} min {rest % 60} s"
