"""What a step costs on several devices with links between them, from a config.json and a data sheet.

    compute   arithmetic / peak, or bytes of weights and KV / bandwidth: the slower of the two
    links     the bytes that each device sends / the link's bandwidth, plus a latency per message

`devices_table` compares divisions at one load: the engine runs unchanged on a virtual clock, with as
much KV memory as the weights leave. The divisions are those of `engine/parallel`, and two more:

    data      replicas: each device has the whole model and a part of the requests
    expert    attention is data parallel and each device has a part of the experts; tokens are sent to
              their experts and back by an all-to-all (vLLM: `--data-parallel-size 8
              --enable-expert-parallel`)

A pipeline has a batch in each stage, as in vLLM; `pipelined_loop.py` says how it is kept full. That
does not shorten a step but multiplies the steps per second. `engine/parallel` divides one step's batch.

This is a roofline, not a measurement. It assumes that kernels reach `efficiency` of the data sheet,
that experts are chosen evenly, and that nothing overlaps with a message. A ring all-reduce is assumed;
NCCL also has trees, and vLLM a one-shot kernel for small messages, so that real latencies are lower.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.runner import Row
from engine.models.kv_sizes import KVSizes, kv_sizes
from engine.simulation.cost_runner import US_PER_MS, CostRunner
from engine.simulation.latencies import Latencies
from engine.simulation.quantile import quantile
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival, Workload

_VALUE_BYTES = 2  # activations are bfloat16
_US_PER_S = 10**6


@dataclass(frozen=True, slots=True)
class Link:
    """What one device can send, in one direction.

    latency_us  of one message between neighbours
    """

    name: str
    gb_per_s: float
    latency_us: float

    def ms(self, messages: float, size: float) -> float:
        """Return the milliseconds of `messages` one after the other, with `size` bytes together."""
        return messages * self.latency_us / 1e3 + size / self.gb_per_s / 1e6


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, by its data sheet.

    efficiency  the share of peak and bandwidth that kernels reach
    step_ms     fixed cost of a step: launches, scheduling, sampling
    """

    name: str
    gigabytes: float
    gb_per_s: float
    teraflops: float
    efficiency: float = 0.7
    step_ms: float = 1.0


# NVIDIA H100 SXM, data sheet: 80 GB, 3.35 TB/s, 989 TFLOPS in bfloat16 (dense), NVLink 900 GB/s in both
# directions together, so 450 in one; PCIe 5.0 x16 has 64 in one. The network is one port with 400
# Gbit/s per device. The data sheet states no latencies: these are of the usual order.
H100 = Device("H100 SXM", 80, 3350, 989)
NVLINK = Link("NVLink", 450, 1.0)
PCIE = Link("PCIe 5.0", 64, 3.0)
NETWORK = Link("network, 400 Gbit/s", 50, 8.0)


@dataclass(frozen=True, slots=True)
class Division:
    """How devices share a model and its requests; see above. Each field is a number of devices.

    Raises ValueError if experts are divided along with something else than replicas.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "expert"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        if self.expert > 1 and (self.tensor > 1 or self.pipeline > 1):
            raise ValueError("expert can only be combined with data")

    @property
    def group(self) -> int:
        """The devices of one replica."""
        return self.tensor * self.pipeline * self.expert

    def __str__(self) -> str:
        names = {"TP": self.tensor, "PP": self.pipeline, "EP": self.expert, "DP": self.data}
        return (
            " ".join(f"{name}={size}" for name, size in names.items() if size > 1) or "one device"
        )


class StepLoad(NamedTuple):
    """The work of a step: new tokens, positions that attention reads, pairs of both, logits."""

    tokens: int
    context: int
    pairs: int
    rows: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "StepLoad":
        """Return the load of a step's rows."""
        ends = [row.start + row.count for row in rows]
        return cls(
            tokens=sum(row.count for row in rows),
            context=sum(ends),
            pairs=sum(row.count * end for row, end in zip(rows, ends, strict=True)),
            rows=len(rows),
        )

    def part(self, parts: int) -> "StepLoad":
        """Return an even share."""
        return StepLoad(*(-(-value // parts) for value in self))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model that its cost depends on. Bytes and parameters are those of one layer."""

    kv: KVSizes
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    experts: int
    per_token: int
    expert_parameters: int
    other_parameters: int
    value_bytes: float

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> "Sizes":
        """Read a config.json's entries; raises KVSizeError like `kv_sizes`."""
        kv, hidden, heads = (
            kv_sizes(entries),
            entries["hidden_size"],
            entries["num_attention_heads"],
        )
        layers, experts = entries["num_hidden_layers"], entries.get("num_experts", 0)
        inner = 3 * hidden * entries.get("moe_intermediate_size", 0)
        embeddings = (
            (1 if entries.get("tie_word_embeddings") else 2) * entries["vocab_size"] * hidden
        )
        others = (kv.parameters - embeddings) // layers - experts * inner
        return cls(
            kv=kv,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=entries.get("num_key_value_heads", heads),
            head_dim=entries.get("head_dim") or hidden // heads,
            vocab=entries["vocab_size"],
            experts=experts,
            per_token=entries.get("num_experts_per_tok", 0),
            expert_parameters=inner,
            other_parameters=others,
            value_bytes=kv.weights / kv.parameters,
        )

    def touched(self, tokens: int) -> float:
        """Return how many experts of a layer `tokens` use, if each expert is equally likely."""
        if not self.experts:
            return 0.0
        return self.experts * (1 - (1 - self.per_token / self.experts) ** tokens)


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of one step, in milliseconds, and what all devices send per token and layer."""

    compute: float
    links: float
    bytes_per_token_layer: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.compute + self.links


class Machine:
    """A division of a model on devices with a link."""

    def __init__(
        self, entries: Mapping[str, Any], division: Division, device: Device, link: Link
    ) -> None:
        self.sizes, self.division = Sizes.of(entries), division
        self.device, self.link = device, link

    @property
    def weight_bytes(self) -> float:
        """The bytes of weights on the fullest device."""
        sizes, division = self.sizes, self.division
        if division.expert == 1:
            return sizes.kv.weights / (division.tensor * division.pipeline)
        experts = sizes.layers * sizes.experts * sizes.expert_parameters * sizes.value_bytes
        return sizes.kv.weights - experts * (1 - 1 / division.expert)

    @property
    def kv_tokens(self) -> int:
        """The tokens whose KV fits in one replica; 0 if the weights alone do not fit."""
        free = self.device.gigabytes * 1e9 * 0.9 - self.weight_bytes
        return max(0, int(free * self.division.expert // self._kv_bytes_per_token))

    @property
    def _kv_bytes_per_token(self) -> float:
        """The bytes of a token's KV on each device that has a part of it.

        Devices that outnumber the KV heads have copies of them.
        """
        heads = min(self.division.tensor, self.sizes.kv_heads)
        return self.sizes.kv.per_token() / heads / self.division.pipeline

    def price(self, load: StepLoad) -> Price:
        """Return the price of a step of one replica, whose batch passes through all stages."""
        sizes, stages, (_, _, sent) = self.sizes, self.division.pipeline, self._layer(load)
        parts = self._stage(load, last=False), self._stage(load, last=True)
        per_token = sent / max(1, load.tokens)
        if stages > 1:  # a stage sends each token once, for all of its layers
            crossed = sizes.hidden * _VALUE_BYTES * (stages - 1) * self.division.tensor
            per_token += crossed / sizes.layers
        (compute, links), (last_compute, last_links) = parts
        return Price(
            compute=(stages - 1) * compute + last_compute,
            links=(stages - 1) * (links + self.border_ms(load)) + last_links,
            bytes_per_token_layer=per_token,
        )

    def stages_ms(self, load: StepLoad) -> list[float]:
        """Return for how long a batch occupies each stage."""
        first = [self._stage(load, last=False)] * (self.division.pipeline - 1)
        return [sum(one) for one in (*first, self._stage(load, last=True))]

    def border_ms(self, load: StepLoad) -> float:
        """Return the time from one stage to the next, in which both may compute other batches."""
        return self.link.ms(1, load.tokens * self.sizes.hidden * _VALUE_BYTES)

    def _stage(self, load: StepLoad, *, last: bool) -> tuple[float, float]:
        """Return the time that a stage computes, and that of its messages."""
        sizes, division = self.sizes, self.division
        compute, links, _ = self._layer(load)
        layers = sizes.layers / division.pipeline
        head = 0.0
        if last:
            head = self.device.step_ms + self._roofline(
                sizes.vocab * sizes.hidden * sizes.value_bytes / division.tensor,
                2 * sizes.vocab * sizes.hidden * load.rows / division.tensor / division.expert,
            )
        return layers * compute + head, layers * links

    def _layer(self, load: StepLoad) -> tuple[float, float, float]:
        """Return a layer's time on one device, that of its messages, and the bytes that all send."""
        sizes, division = self.sizes, self.division
        tensor, expert = division.tensor, division.expert
        own = load.part(expert)  # attention is data parallel where experts are divided
        kv = own.context * self._kv_bytes_per_token * division.pipeline / sizes.layers
        flops = 2 * own.tokens * sizes.other_parameters / tensor
        flops += 4 * own.pairs * sizes.heads * sizes.head_dim / tensor
        compute = self._roofline(sizes.other_parameters * sizes.value_bytes / tensor + kv, flops)
        if sizes.experts:
            parts = tensor * expert
            read = sizes.touched(load.tokens) * sizes.expert_parameters * sizes.value_bytes
            work = 2 * load.tokens * sizes.per_token * sizes.expert_parameters
            compute += self._roofline(read / parts, work / parts)
        links = sent = 0.0
        if tensor > 1:
            size = 2 * (tensor - 1) / tensor * load.tokens * sizes.hidden * _VALUE_BYTES
            links += 2 * self.link.ms(2 * (tensor - 1), size)
            sent += 2 * size * tensor
        if expert > 1:
            leaving = own.tokens * sizes.per_token * (expert - 1) / expert
            size = leaving * sizes.hidden * _VALUE_BYTES
            links += 2 * self.link.ms(expert - 1, size)
            sent += 2 * size * expert
        return compute, links, sent

    def _roofline(self, size: float, flops: float) -> float:
        """Return the milliseconds to read `size` bytes and do `flops` operations at the same time."""
        device = self.device
        slower = max(size / (device.gb_per_s * 1e9), flops / (device.teraflops * 1e12))
        return slower / device.efficiency * 1e3


class DeviceRunner(CostRunner):
    """A simulated machine with several devices."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(0.0, 0.0)
        self._machine = machine
        self.batches_in_flight = machine.division.pipeline
        self._free_ms = [0.0] * self.batches_in_flight  # when each stage is free

    def describe(self) -> dict[str, Any]:
        """Name the division and its device."""
        machine = self._machine
        name = f"{machine.division} on {machine.device.name}, {machine.link.name}"
        return {"name": name, "parameters": machine.sizes.kv.parameters}

    def step_ms(self, rows: Sequence[Row], *, woken: bool) -> float:
        """Return when the rows leave the last stage. In each stage they come after earlier batches."""
        load, began = StepLoad.of(rows), self.clock.now() / US_PER_MS
        at = began - (border := self._machine.border_ms(load))
        for stage, lasts in enumerate(self._machine.stages_ms(load)):
            at = self._free_ms[stage] = max(at + border, self._free_ms[stage]) + lasts
        return at - began


class Figures(NamedTuple):
    """One line of the table; times in milliseconds, None for a division that does not fit.

    gigabytes    of weights on a device
    kv_tokens    tokens whose KV fits, over all replicas
    decode_ms    a step with `batch` requests, divided among the replicas
    prefill_ms   a step with one prompt
    share        the share of the links in the decode step
    sent         bytes that the devices of a replica send together, per token and layer
    """

    division: Division
    gigabytes: float
    kv_tokens: int
    decode_ms: float | None = None
    share: float | None = None
    prefill_ms: float | None = None
    sent: float | None = None
    tokens_per_s: float | None = None
    ttft_p50: float | None = None
    ttft_p99: float | None = None


def devices_table(
    entries: Mapping[str, Any],
    divisions: Sequence[Division],
    workload: Workload,
    *,
    device: Device = H100,
    link: Link = NVLINK,
    batch: int = 64,
    context: int = 1024,
) -> list[Figures]:
    """Compare divisions under one workload. Replicas get its requests in turn."""
    return [
        figures(Machine(entries, one, device, link), workload, batch, context) for one in divisions
    ]


def figures(machine: Machine, workload: Workload, batch: int, context: int) -> Figures:
    """Return the table's line of one machine."""
    division, replicas = machine.division, machine.division.data
    kv_tokens, gigabytes = machine.kv_tokens, machine.weight_bytes / 1e9
    if kv_tokens < 2 * context:
        return Figures(division, gigabytes, 0)
    own = -(-batch // replicas)
    decode = machine.price(StepLoad(own, own * context, own * context, own))
    prefill = machine.price(StepLoad(context, context, context * context // 2, 1))
    inputs = [one for one in workload.inputs if isinstance(one, Arrival)]
    needed = sum(len(one.prompt) + one.params.max_tokens + 16 for one in inputs)
    settings = EngineConfig(
        token_budget=2048,
        max_batch_size=1024,  # as in vLLM on a GPU of this size
        block_size=16,
        max_kv_tokens=min(kv_tokens, needed),  # more would only make the simulation slower
    )
    ttft, tokens, begin, end = list[float](), 0, float("inf"), 0.0
    for replica in range(replicas):
        own_inputs = Workload([*inputs[replica::replicas]])
        log = simulate(own_inputs, settings, cost=DeviceRunner(machine))
        latencies, seen = Latencies(), set[int]()
        for event in log:
            latencies.note(event)
            if not isinstance(event, v.StepFinished) or not event.tokens:
                continue
            begin, end = min(begin, event.t["start"]), max(end, event.t["end"])
            for row in event.tokens:
                tokens += len(row.ids)
                if row.request not in seen:
                    seen.add(row.request)
                    ttft.append(latencies.since_arrival(row.request, event.t["end"]) or 0.0)
    return Figures(
        division,
        gigabytes,
        kv_tokens * replicas,
        decode.total,
        decode.links / decode.total,
        prefill.total,
        decode.bytes_per_token_layer,
        tokens / (end - begin) * _US_PER_S,
        quantile(ttft, 0.5),
        quantile(ttft, 0.99),
    )
