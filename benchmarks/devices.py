"""One model on eight devices: tensor, pipeline, expert and data parallel at one load, simulated.

`engine/simulation/devices.py` says where the figures of the devices come from and what is left out.
"""

from typing import Annotated

import typer

from benchmarks.harness import save
from engine.models.configurations import CONFIGURATIONS
from engine.simulation.devices import H100, NETWORK, NVLINK, PCIE, Division, devices_table
from engine.simulation.workload import Workload, lognormal, poisson, uniform

DIVISIONS = {
    "Llama 3.1 70B": (
        Division(tensor=8),
        Division(tensor=4, data=2),
        Division(tensor=2, data=4),
        Division(data=8),
        Division(tensor=2, pipeline=4),
        Division(pipeline=8),
    ),
    "Qwen3 30B-A3B": (
        Division(tensor=8),
        Division(tensor=2, data=4),
        Division(data=8),
        Division(pipeline=8),
        Division(expert=8),
    ),
}
COLUMNS = (
    "weights, GB", "KV, tokens", "decode, ms", "links", "prefill, ms", "bytes", "tokens/s",
    "TTFT p50", "p99",
)  # fmt: skip


def main(
    requests: Annotated[int, typer.Option(help="requests to serve", min=1)] = 400,
    rate: Annotated[float, typer.Option(help="requests per second", min=0.1)] = 20.0,
) -> None:
    """Print a table per model and link."""
    workload = Workload.generate(
        requests, arrivals=poisson(rate), prompt=lognormal(1000, 0.5, 3000), output=uniform(50, 150)
    )
    found = {}
    for model, divisions in DIVISIONS.items():
        for link in (NVLINK, PCIE, NETWORK):
            print(f"\n{model} on 8 x {H100.name}, {link.name}\n{'':12}", *COLUMNS, sep=" | ")
            for one in devices_table(CONFIGURATIONS[model].entries, divisions, workload, link=link):
                values = [f"{value:,.4g}" if value is not None else "-" for value in one[1:]]
                print(f"{one.division!s:12}", *values, sep=" | ", flush=True)
                found[f"{model}, {link.name}, {one.division}"] = one[1:]
    save("devices", found)
