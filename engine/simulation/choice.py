"""The choices of a reader in the scheduler's seat, as data: see `rerun.py`."""

import msgspec

CUT = "cut"  # in run_started's `t`: the last step of a log whose future is not to be shown


class ChoiceError(ValueError):
    """A step cannot be decided again, or not in this way."""


class Victim(msgspec.Struct, frozen=True, tag="victim"):
    """Preempt `request` where the step's preemption number `nth`, from 0, takes place."""

    request: int
    nth: int = 0


class First(msgspec.Struct, frozen=True, tag="first"):
    """Consider the waiting `request` before all others in this step."""

    request: int


class Later(msgspec.Struct, frozen=True, tag="later"):
    """Put the waiting `request` off for one step, as a policy may do while others compute."""

    request: int


class Evict(msgspec.Struct, frozen=True, tag="evict"):
    """Evict the leaf `node` where the step's eviction number `nth`, from 0, takes place."""

    node: int
    nth: int = 0


class Budget(msgspec.Struct, frozen=True, tag="budget"):
    """Hand out at most `tokens` in this step, which sets the size of the last chunk."""

    tokens: int


class Settings(msgspec.Struct, frozen=True, tag="settings"):
    """Run on with other settings from this step on; None keeps one as it was.

    seats   the largest batch
    budget  tokens in a step
    blocks  KV blocks to take away (negative) or to add. Blocks are numbered when a run begins, so that
            added ones are there from its first step on; without a prefix cache, which keeps those
            that are taken away, so is the loss
    """

    seats: int | None = None
    budget: int | None = None
    blocks: int = 0


Choice = Victim | First | Later | Evict | Budget | Settings
