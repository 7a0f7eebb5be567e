"""Format durations as the board does (`visualizer/frontend/src/model/duration.js`)."""

from decimal import ROUND_HALF_UP, Context, Decimal

DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)


def duration(ms: float) -> str:
    """Format like "35.1 s" or "120 ms": three significant digits, or whole seconds from 1000 s up."""
    shown = DIGITS.create_decimal_from_float(ms)
    if abs(shown) < 1000:
        return f"{_plain(shown)} ms"
    seconds = ms / 1000
    if abs(seconds) < 1000:
        return f"{_plain(DIGITS.create_decimal_from_float(seconds))} s"
    return f"{Decimal(seconds).quantize(Decimal(1), ROUND_HALF_UP):,} s"


def _plain(value: Decimal) -> str:
    """Format without an exponent and without trailing zeros: "1,000", "2.5"."""
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
