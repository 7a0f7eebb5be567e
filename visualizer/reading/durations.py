"""Format durations as the board does (`visualizer/frontend/src/model/duration.ts`)."""

from decimal import ROUND_HALF_UP, Context, Decimal

DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)


def duration(ms: float) -> str:
    """Format a duration like "35.1 s" or "120 ms": three significant digits, or whole seconds from 1000
    s up."""
    shown = DIGITS.create_decimal_from_float(ms)
    if abs(shown) < 1000:
        return f"{shown.normalize():,f} ms"
    seconds = ms / 1000
    if abs(seconds) < 1000:
        return f"{DIGITS.create_decimal_from_float(seconds).normalize():,f} s"
    return f"{Decimal(seconds).quantize(Decimal(1), ROUND_HALF_UP):,} s"
