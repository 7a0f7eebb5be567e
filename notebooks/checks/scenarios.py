"""The runs that the lessons open with, by name.

    static = scenario("twelve people, four seats")

A lesson shows its picture before its code, so the code of that first run is here, or in the gallery
(`engine/simulation/scenarios.py`) if the gallery has the same run. Most lessons write it again below
their question, where you can change it.
"""

import gzip
import json
import random
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

import msgspec

from checks.beginning import until
from engine import Cost, CostRunner, Engine, EngineConfig, SamplingParams, simulate
from engine.core.log import EventLog
from engine.simulation.scenarios import SCENARIOS
from engine.simulation.speakers import NAMES, Speaker, talk, workload_of

MACHINE = Cost(10, 0.25)  # a pretend machine: 10 ms for a step, 0.25 ms for each token in it


def scenario(name: str) -> Any:
    """Return what a lesson opens with: a log, an engine that has run, or a figure.

    Raises ValueError for an unknown name, with the closest one.
    """
    if name not in _BY_NAME:
        close = get_close_matches(name, _BY_NAME, n=1, cutoff=0)
        raise ValueError(f"no lesson opens with {name!r}; did you mean {close[0]!r}?")
    return _BY_NAME[name]()


def two_stories() -> Engine:
    """Lesson 01: the bundled model continues one beginning twice, with two seeds."""
    start = "Once upon a time, a fox called Theo lived near a quiet river. One day"
    engine = Engine.load("bundled", EngineConfig(max_batch_size=8))
    people = [
        engine.submit(start, SamplingParams(max_tokens=44, temperature=0.8, seed=seed), label=name)
        for name, seed in {"Ada": 59, "Bo": 53}.items()
    ]
    while engine.has_work():
        engine.step()
    for one in people:
        print(fill(f"{one.label}: ...{one.output_text}", 96), "\n")
    return engine


def passes(prompt: int = 32, new: int = 64) -> Any:
    """Lesson 02: the tokens that each pass computes, without a KV cache and with one."""
    import numpy as np
    from plotly.subplots import make_subplots

    row, position = np.ogrid[:new, : prompt + new - 1]
    text = position < prompt + row  # the text of each pass
    unseen = text & ((row == 0) | (position == prompt + row - 1))
    titles = [f"all again: {text.sum():,} tokens", f"only the unseen: {unseen.sum()} tokens"]
    triangles = make_subplots(1, 2, subplot_titles=titles, x_title="position", y_title="pass")
    colours = ["rgba(0,0,0,0)", "rgba(128,135,147,0.35)", "#cf7f22"]
    for column, work in enumerate((text, unseen), 1):
        triangles.add_heatmap(
            z=text + 1 * work, colorscale=colours, showscale=False, row=1, col=column
        )
    bare = dict(showgrid=False, zeroline=False)
    triangles.update_xaxes(**bare).update_yaxes(range=[new, 0], **bare)
    see_through = dict(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    return triangles.update_layout(height=340, margin_t=40, font_color="#757c88", **see_through)


def four_steps() -> Any:
    """Lesson 03: the roofline of an H100, and four steps of Llama-2-7B. The lesson counts them."""
    from visualizer import figures

    peak, bandwidth = 989e12, 3.35e12
    steps = {
        "decode, 1 person": (13.74e9, 13.74e9),
        "decode, 8 people": (109.9e9, 17.41e9),
        "decode, 64 people": (879.3e9, 46.77e9),
        "prefill, 1,000 tokens": (13.215e12, 13.739e9),
    }
    dots = {
        name: (flops, moved, max(flops / peak, moved / bandwidth))
        for name, (flops, moved) in steps.items()
    }
    return figures.roofline(dots, flops_per_s=peak, bytes_per_s=bandwidth)


def slabs() -> EventLog:
    """Lesson 05: each request reserves 128 slots in one piece."""
    prompts, answers = [20, 27, 33, 18, 25, 30, 22, 37], [8, 40, 12, 20, 16, 32, 10, 24]
    people = workload_of(
        Speaker(name, own=prompt, output=answer, max_tokens=128 - prompt)
        for name, prompt, answer in zip(NAMES, prompts, answers, strict=False)
    )
    config = EngineConfig(token_budget=256, max_kv_tokens=512, prefix_cache=False, block_size=128)
    return simulate(people, config, cost=MACHINE)


def closed_laptop() -> EventLog:
    """Lesson 13: thirty people get a letter in each step; Kim's request is ended after step 40."""
    machine, kim = CostRunner(10, 0.25), 11
    config = EngineConfig(token_budget=512, max_batch_size=30, max_kv_tokens=8192)
    engine = Engine(machine, config, clock=machine.clock)
    for name in NAMES:
        engine.submit("Hi", SamplingParams(max_tokens=96, ignore_eos=True), label=name)
    while engine.has_work():
        engine.step()
        if engine.step_count == 40:
            engine.abort(kim)
    return engine.log


def agents() -> EventLog:
    """Lesson 16: four agents, each away for a minute or two between its turns."""
    from engine.simulation.workload import Workload, poisson, uniform

    lengths: dict[str, Any] = dict(prompt=uniform(500, 1500), output=uniform(16, 32))
    four = Workload.agents(4, 3, away_ms=poisson(1 / 60), instructions=1024, seed=1, **lengths)
    config = EngineConfig(
        max_kv_tokens=8192, block_size=128, token_budget=2048, host_kv_tokens=8192
    )
    machine = Cost(8, 0.032, per_pair_ms=1e-6, per_host_token_ms=0.0026, per_disk_token_ms=0.013)
    return simulate(four, config, cost=machine)


def afternoon() -> EventLog:
    """Lesson 12: twenty-four people, drawn from a seed."""
    from checks.afternoon import afternoon

    return afternoon()


def real_vllm() -> EventLog:
    """Lesson 11: a recording of vLLM on a CPU."""
    from visualizer import gallery

    log: EventLog = gallery()["vllm_tight"].log
    return log


def two_devices(division: str) -> EventLog:
    """Lesson 21: the bundled model in two processes, recorded."""
    packed = (Path(__file__).parent / f"devices_{division}.jsonl.gz").read_bytes()
    return EventLog.from_bytes(gzip.decompress(packed))


def shaped() -> Engine:
    """Lesson 15: the bundled model answers one question freely, then in the shape of a schema."""
    from engine.core.sampling_params import StructuredOutput

    legs = {"type": "integer", "minimum": 0, "maximum": 8}
    animals = {"enum": ["cat", "dog", "owl", "fox", "hen"]}
    schema = {"type": "object", "properties": {"animal": animals, "legs": legs}}
    schema["required"] = ["animal", "legs"]
    model = Engine.load("bundled", EngineConfig())
    chat = [{"role": "user", "content": "Which animal do you like? Answer as JSON."}]
    ids = model.tokenizer.encode(model.tokenizer.chat_template.render(chat))
    as_schema = StructuredOutput("json_schema", json.dumps(schema))
    for name, shape in {"free:  ": None, "shaped:": as_schema}.items():
        params = SamplingParams(max_tokens=40, temperature=0, structured=shape)
        print(name, model.complete([ids], params, progress=False)[0].text)
    return model


def turns_and_ahead() -> dict[str, EventLog]:
    """Lesson 17: four steps of one workload, in turns and one step ahead, before any seat is free."""
    table = SCENARIOS["continuous_batching"]
    config = msgspec.structs.replace(table.config, prefix_cache="off")
    early = msgspec.structs.replace(config, async_scheduling=True)
    cost = Cost(10, 0.25, cpu_ms=5)
    turns, ahead = (simulate(table.workload, one, cost=cost) for one in (config, early))
    return {"taking turns": until(turns, 4), "one step ahead": until(ahead, 5)}


def guides() -> Any:
    """Lesson 18: questions about guides of 1,000 tokens, which a coin sends to two replicas."""
    from engine.cluster.simulate_cluster import simulate_cluster

    topics = ["lamps", "boats", "foxes", "bread", "snow", "trains"]
    rng, at_ms, people = random.Random(1), 0.0, []
    for number, topic in enumerate(rng.sample(topics * 4, 24), start=1):
        at_ms += 1000 * rng.expovariate(8)
        text = f"All about {topic}." + "".join(talk(2 * topics.index(topic), 996))
        text += f" {number}:" + "".join(talk(number, 28))
        people.append(Speaker(f"{topic} {number}", prompt=text, output=16, at_ms=at_ms))
    config = EngineConfig(max_kv_tokens=4096, block_size=16, token_budget=512, max_batch_size=16)
    workload, cost = workload_of(people), Cost(10, 0.2)
    return simulate_cluster(workload, config, cost=cost, router="random", lag_ms=50)


def moved_blocks() -> Any:
    """Lesson 19: one replica computes the prompts, and another one writes the answers."""
    from engine.cluster.simulate_cluster import simulate_cluster
    from engine.cluster.simulated_roles import Roles
    from engine.cluster.transfer import TransferCosts

    chats = [Speaker(name, own=32, output=200, at_ms=0) for name in NAMES[:8]]
    documents = [Speaker(f"doc {i}", own=1000, output=30, at_ms=1000 * i / 3) for i in (1, 2)]
    config = EngineConfig(token_budget=512, max_batch_size=16, max_kv_tokens=8192)
    link = TransferCosts(fixed_ms=2, block_ms=0.13, token_ms=0.25)
    return simulate_cluster(
        workload_of([*chats, *documents]),
        config,
        cost=Cost(10, 0.25, per_context_token_ms=0.001),
        router="round_robin",
        roles=Roles(prefill=1, decode=1, transfer=link),
    )


def busy() -> EventLog:
    """Lesson 20: twelve requests a second, at random times, on a machine that can take thirteen."""
    from engine import Load

    return simulate(Load().at(12), EngineConfig(), cost=MACHINE)


def five_customers() -> EventLog:
    """Lesson 23: people of three firms, two of whose adapters are in a slot."""
    people = workload_of(
        [
            Speaker("Ada", step=1, own=24, output=14, adapter="law"),
            Speaker("Bo", step=1, own=20, output=8, adapter="shop"),
            Speaker("Cleo", step=3, own=20, output=10, adapter="toys"),
            Speaker("Dev", step=5, own=20, output=10, adapter="law"),
            Speaker("Eva", step=5, own=20, output=10),
        ]
    )
    return simulate(people, EngineConfig(max_loras=2, max_batch_size=6), cost=MACHINE)


def two_models() -> Any:
    """Lesson 22: how many users fit beside the weights of two models, on one GPU of 80 GB."""
    from engine.models.configurations import CONFIGURATIONS
    from engine.models.kv_sizes import kv_sizes
    from visualizer import figures

    names = "Qwen3 8B", "gpt-oss-20b"
    fits = {name: kv_sizes(CONFIGURATIONS[name].entries).fit(80e9, 8192) for name in names}
    return figures.users(fits)


def _of_the_gallery(name: str, **changes: Any) -> Callable[[], EventLog]:
    return lambda: SCENARIOS[name].run(**changes)


_BY_NAME: dict[str, Callable[[], Any]] = {
    "five people, four seats": _of_the_gallery("first_look"),
    "one beginning, two stories": two_stories,
    "32 tokens, then 64 more": passes,
    "four steps of a large model": four_steps,
    "twelve people, four seats": _of_the_gallery("static_batching"),
    "eight people, 512 slots, 128 for each": slabs,
    "four people, one storyteller": _of_the_gallery("hit"),
    "four people, one moment": _of_the_gallery("in_batch_sharing", prefix_cache="off"),
    "four texts, twelve blocks": _of_the_gallery("eviction"),
    "four chats, a document of 400 tokens": _of_the_gallery("chunk_budget", chunked_prefill=False),
    "three answers, 14 blocks": _of_the_gallery("preemption"),
    "a text to repeat": _of_the_gallery("speculation"),
    "thirty people, one closed laptop": closed_laptop,
    "four agents, one comes back": agents,
    "an afternoon in class": afternoon,
    "nine people, a real vLLM": real_vllm,
    "an animal as JSON": shaped,
    "twelve people, 5 ms of Python": turns_and_ahead,
    "six guides, two replicas": guides,
    "eight chats, two documents": moved_blocks,
    "twelve a second": busy,
    "two models, one GPU": two_models,
    "five people, two adapter slots": five_customers,
    "two devices, each with half of every layer": partial(two_devices, "tensor"),
    "two devices, one after the other": partial(two_devices, "pipeline"),
}
