"""Numbers of bytes as text."""

_MB, _GB = 10**6, 10**9


def byte_size(size: float) -> str:
    """Return a number of bytes as text: "1.2 GB", or "12 MB" below a gigabyte."""
    return f"{size / _GB:.1f} GB" if size >= _GB else f"{size / _MB:.0f} MB"
