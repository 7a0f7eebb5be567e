"""What moving KV costs, and what computing it costs, from the moves and the prompts of real requests.

    move     ms = fixed_ms + block_ms * blocks    one sample per move
    compute  ms = token_ms * tokens               one sample per step of a decode replica that computed
                                                  mostly prompts

Each line is fitted by least squares. Older samples count less and less, so the prices follow the load,
and a sample far above the line is cut: a pause of the machine is not a price.

A gateway starts without prices. It learns what a token costs from prompts that are computed where they
are decoded. The first few moves are a guess: prompts of at least `_WORTH` blocks, where moving nearly
always pays, one after the other. Prices that speak against moving are never contradicted, because
nothing moves, so now and then a long prompt moves all the same. It takes the same way as all others: no
request is made up, and nothing is evicted for a measurement.

A move that fails turns moving off for a second. Then one prompt tries again, and each further failure
doubles the pause.

Source: recursive least squares with a forgetting factor (Haykin, Adaptive Filter Theory, chapter 10);
the exploration is that of an epsilon-greedy bandit whose epsilon shrinks.
"""

from engine.cluster.transfer import (
    TransferCosts,
    blocks_to_move,
    least_blocks_to_move,
    movable_blocks,
)

_FORGET = 0.95  # what a sample counts after one more, as a factor
_ENOUGH = 3  # samples that make a line
_CUT = 4.0  # a sample counts as at most so many times what the line expected
_RIDGE = 0.1  # pulls the fixed price to 0, so that samples of one size give a line, too
_WORTH = 8  # blocks of a prompt that moves although the prices do not say so
_FIRST_TRIES, _FIRST_DOUBT, _FIRST_PAUSE = 0.1, 30.0, 1.0  # seconds
_LONGEST = 600.0


class Line:
    """The line y = fixed + slope * x through samples, of which the last ones count most.

    has_fixed  if False, `fixed` is 0
    """

    def __init__(self, *, has_fixed: bool = True) -> None:
        self._has_fixed = has_fixed
        self.samples = 0
        self.fixed = self.slope = 0.0
        self._sums = [0.0] * 5  # of 1, x, y, x * x and x * y

    @property
    def is_known(self) -> bool:
        """Whether there are enough samples."""
        return self.samples >= _ENOUGH

    def add(self, x: float, y: float) -> None:
        """Add a sample, and fit the line."""
        if self.is_known and (expected := self.fixed + self.slope * x) > 0:
            y = min(y, _CUT * expected)
        new = 1.0, x, y, x * x, x * y
        one, sum_x, sum_y, sum_xx, sum_xy = self._sums = [
            _FORGET * old + value for old, value in zip(self._sums, new, strict=True)
        ]
        self.samples += 1
        ridged = one + _RIDGE
        self.slope = (ridged * sum_xy - sum_x * sum_y) / (ridged * sum_xx - sum_x * sum_x)
        self.fixed = (sum_y - self.slope * sum_x) / ridged
        if self.slope < 0 and self._has_fixed:
            self.slope, self.fixed = 0.0, sum_y / one
        elif self.fixed < 0 or not self._has_fixed:
            self.slope, self.fixed = sum_xy / sum_xx, 0.0


class Prices:
    """The prices, and whether a prompt is moved. Times are seconds on one clock that never goes back.

    off  why nothing is moved, since the last move failed; "" if it succeeded
    """

    def __init__(self) -> None:
        self.off = ""
        self._moves, self._steps = Line(), Line(has_fixed=False)
        self._pause = 0.0  # after a failure
        self._not_before = 0.0
        self._trying = False  # whether a prompt tries again after a failure
        self._doubt = _FIRST_DOUBT
        self._next_try = 0.0

    @property
    def moves(self) -> int:
        """How many moves the prices rest on."""
        return self._moves.samples

    @property
    def steps(self) -> int:
        """How many steps the price of a token rests on."""
        return self._steps.samples

    @property
    def costs(self) -> TransferCosts | None:
        """The prices; None until there are enough samples."""
        if not (self._moves.is_known and self._steps.is_known):
            return None
        return TransferCosts(self._moves.fixed, self._moves.slope, self._steps.slope)

    def seconds_of_prompt(self, tokens: int) -> float:
        """Return how long it should take to compute a prompt; 0 if nothing is known."""
        return self._steps.slope * tokens / 1000

    def seconds_of_move(self, blocks: int) -> float:
        """Return how long it should take to move blocks; 0 if nothing is known."""
        return (self._moves.fixed + self._moves.slope * blocks) / 1000

    def least_blocks(self, block_size: int) -> int | None:
        """Return the length from which prompts are moved; None if none is, or nothing is known."""
        return None if self.costs is None else least_blocks_to_move(block_size, self.costs)

    def is_moved(self, tokens: int, here: int, block_size: int, now: float) -> bool:
        """Return whether to move a prompt of which the decode replica has the first `here` blocks."""
        if now < self._not_before:
            return False
        there, costs = tokens // block_size, self.costs
        if costs is not None and blocks_to_move(tokens, here, there, block_size, costs):
            moved, self._doubt = True, _FIRST_DOUBT
        else:
            moved = self._is_tried(movable_blocks(tokens, here, there, block_size), now)
        if moved and self.off:
            self._not_before, self._trying = now + self._pause, True  # the others wait for this one
        return moved

    def _is_tried(self, blocks: int, now: float) -> bool:
        """Return whether to move blocks to learn what it costs."""
        if blocks < _WORTH or now < self._next_try:
            return False
        if not self._moves.is_known:
            self._next_try = now + _FIRST_TRIES
        elif self.costs is None:
            return False  # the price of a token is missing, and computing this prompt gives it
        else:
            self._next_try = now + self._doubt
            self._doubt = min(2 * self._doubt, _LONGEST)
        return True

    def moved(self, blocks: int, ms: float) -> None:
        """Note a move."""
        self._moves.add(blocks, ms)
        self._pause, self._not_before, self._trying, self.off = 0.0, 0.0, False, ""

    def computed(self, tokens: int, ms: float) -> None:
        """Note a step that computed mostly prompts."""
        self._steps.add(tokens, ms)

    def failed(self, why: str, now: float) -> None:
        """Note that a move has failed. Several that fail together count once."""
        if self.off and not self._trying:
            return
        self._trying = False
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST)
        self._not_before, self.off = now + self._pause, why
