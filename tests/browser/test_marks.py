"""A request looks the same wherever a panel names it: its lane's mark, hollow before it has a lane."""

from engine import Cost, EngineConfig, EventLog, Workload, simulate
from engine.simulation.workload import poisson, uniform
from visualizer.logs import StepIndex, state_before

_TEXTURES = ("solid", "dots", "keyline")

_SWATCHES = """
(root) => [...root.querySelectorAll(".chip[data-request]")].map((chip) => {
  const { dataset, style } = chip.querySelector("i");
  return [Number(chip.dataset.request), dataset.mark, style.background + style.boxShadow];
})
"""


def crowded_log() -> EventLog:
    workload = Workload.generate(
        60, arrivals=poisson(200), prompt=uniform(6, 18), output=uniform(8, 30), seed=5
    )
    config = EngineConfig(token_budget=96, max_batch_size=26, max_kv_tokens=560, block_size=8)
    return simulate(workload, config, cost=Cost(5, 0.05, 0.02, 0.00002, 1e-6))


def test_every_name_has_the_mark_of_its_lane(open_board):
    log, page = crowded_log(), None
    ends = StepIndex(log).ends
    seen: set[str] = set()
    for step in (5, 24, 25, 26, 40):
        board = open_board(log, f"#step={step}", on=page)
        page = board.page
        state = state_before(log, ends[step])
        live = {request: state.lanes.of(request) for request in state.requests}
        looks: dict[int, str] = {}
        for request, mark, look in board.root.evaluate(_SWATCHES):
            assert looks.setdefault(request, look) == look, "all swatches of a request are equal"
            if request not in live:
                continue  # it ended in this step
            lane = live[request]
            assert mark == ("hollow" if lane is None else _TEXTURES[lane // 10 % 3])
            seen.add(mark)
        admitted = [look for request, look in looks.items() if live.get(request) is not None]
        assert len(set(admitted)) == len(admitted) > 1, "no two look alike"
    assert seen == {"hollow", *_TEXTURES}
