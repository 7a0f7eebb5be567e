"""Compare the tokens of all requests of an index with those of one, without making lists of them."""

from collections.abc import Iterator, Sequence

from visualizer.indexed.chunk import first_lists


def common_lengths(contents: bytes, tokens: Sequence[int]) -> Iterator[int]:
    """Yield how many first tokens each request has in common with `tokens`.

    contents  a chunk of `Content`, whose first field are the tokens
    """
    lengths, items = first_lists(contents)
    own = items[:0]
    for token in tokens:
        try:
            own.append(token)
        except OverflowError:  # none of the requests has it, because the column has smaller numbers
            break
    packed, prefix, size = items.tobytes(), own.tobytes(), items.itemsize
    begin = 0
    for length in lengths:
        end = begin + length * size
        yield _common(packed[begin:end], prefix, size)
        begin = end


def _common(packed: bytes, prefix: bytes, size: int) -> int:
    """Return how many first items of `size` bytes two columns have in common."""
    if packed[:size] != prefix[:size]:
        return 0
    least, most = 0, min(len(packed), len(prefix)) // size
    while least < most:
        middle = (least + most + 1) // 2
        if packed[least * size : middle * size] == prefix[least * size : middle * size]:
            least = middle
        else:
            most = middle - 1
    return least
