"""The queue against a plain list that is sorted for every query."""

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.cache.radix_tree import RadixTree
from engine.core.request import Request
from engine.core.sampling_params import SamplingParams
from engine.core.scheduling.policies import POLICIES, LongestPrefixMatch, Policy
from engine.core.scheduling.waiting_queue import WaitingQueue


def request(id_: int, priority: int, length: int) -> Request:
    tokens = [1] * length
    return Request(
        id_, tokens, [""] * length, SamplingParams(), priority=priority, prompt_length=length
    )


class ByLengthAnew(Policy):
    """Like sjf, but with keys that are computed in every step."""

    keys_change = True

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:
        return (len(request.tokens),)


class ByTurns(Policy):
    """One line per priority; a line's key grows by the lengths of its admitted requests."""

    def __init__(self) -> None:
        self.sent = dict.fromkeys(range(6), 0)

    def group(self, request: Request) -> int:
        return request.priority

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:
        return (self.sent[request.priority],)


actions = st.lists(
    st.tuples(
        st.sampled_from(["add", "front", "remove", "take two", "grow", "look at some"]),
        st.integers(0, 2),
        st.integers(1, 4),
    ),
    max_size=40,
)


FIXED = [POLICIES[name] for name in ("fcfs", "priority", "sjf")]


@pytest.mark.parametrize("make", [*FIXED, ByLengthAnew, ByTurns])
@settings(max_examples=100, deadline=None)
@given(actions=actions)
def test_it_agrees_with_a_sorted_list(make, actions) -> None:
    policy, tree = make(), RadixTree(4)
    queue, plain, away = WaitingQueue(policy, tree), list[Request](), list[Request]()

    def in_order() -> list[Request]:
        """Yield requests by the smallest key among the first of each line."""
        left, order = list(plain), []
        while left:
            first = {policy.group(one): one for one in reversed(left)}
            heads = [one for one in left if first[policy.group(one)] is one]
            order.append(min(heads, key=lambda one: policy.key(one, tree)))
            left.remove(order[-1])
        return order

    for number, (action, value, length) in enumerate(actions, start=1):
        if action == "add":
            plain.append(request(number, value, length))
            queue.add(plain[-1])
        elif action == "front" and away:
            plain.insert(0, away.pop())
            queue.add(plain[0], front=True)
        elif action == "remove" and plain:
            gone = plain.pop(value % len(plain))
            queue.remove(gone)
        elif action == "grow" and isinstance(policy, ByTurns):
            policy.sent[value] += length
        elif action == "take two":
            with closing(queue.in_order()) as candidates:
                for taken in candidates:
                    assert taken is in_order()[0]
                    queue.remove(taken)
                    plain.remove(taken)
                    away.append(taken)
                    if isinstance(policy, ByTurns):
                        policy.sent[taken.priority] += len(taken.tokens)
                    if len(away) % 2 == 0:
                        break
        elif action == "look at some":
            with closing(queue.in_order()) as candidates:
                some = [request for request, _ in zip(candidates, range(value), strict=False)]
            assert some == in_order()[:value]
        assert list(queue) == plain
        assert queue.first() is next(iter(in_order()), None)
        assert len(queue) == len(plain)


def test_lpm_keeps_the_order_of_the_queue_when_too_many_wait() -> None:
    tree = RadixTree(1)
    tree.insert(tree.root, [7, 7], [0, 1])
    queue = WaitingQueue(LongestPrefixMatch(), tree)
    for id_ in range(1, 129):
        queue.add(Request(id_, [1, 1], ["", ""], SamplingParams(), prompt_length=2))
    hit = Request(129, [7, 7, 7], [""] * 3, SamplingParams(), prompt_length=3)
    queue.add(hit)
    assert next(queue.in_order()).id == 1
    queue.remove(next(iter(queue)))
    assert next(queue.in_order()) is hit


def test_a_line_that_was_only_looked_at_is_not_asked_too_early_later() -> None:
    """Looking leaves a second entry in the heap; when the line's key has grown both are too small."""
    policy = ByTurns()
    queue = WaitingQueue(policy, RadixTree(4))
    two, three, four = (request(id_, line, 1) for id_, line in [(2, 0), (3, 0), (4, 1)])
    for waiting in (two, three, four):
        queue.add(waiting)
    with closing(queue.in_order()) as candidates:
        assert [next(candidates), next(candidates)] == [two, three]
    policy.sent = {0: 0, 1: 2}
    with closing(queue.in_order()) as candidates:
        queue.remove(next(candidates))
        policy.sent[0] = 1
        assert next(candidates) is three
    policy.sent[0] = 3
    assert queue.first() is four
