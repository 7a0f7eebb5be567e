"""How many replicas a load needs. That Serve acts on it: `test_replicas.py`."""

from types import SimpleNamespace

import pytest


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own, when it is imported
@pytest.mark.parametrize(
    ("unfinished", "wanted"),
    [({}, 0), ({"a": 0.0}, 0), ({"a": 8.0}, 1), ({"a": 8.5, "b": 7.5}, 2), ({"a": 24.5}, 4)],
)
def test_every_request_has_a_place_in_a_batch(unfinished: dict[str, float], wanted: int) -> None:
    from server.gateway.ray_replica import replicas_for_load

    config = SimpleNamespace(get_target_ongoing_requests=lambda: 8)
    metrics = {"unfinished": unfinished} if unfinished else {}
    context = SimpleNamespace(aggregated_metrics=metrics, config=config)
    assert replicas_for_load(context) == (wanted, {})
