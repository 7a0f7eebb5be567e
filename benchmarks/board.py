"""The board on logs of ten thousand, a hundred thousand and a million events, in Chromium.

The log is a simulated engine under changing load: requests of sixty groups with shared prefixes
arrive at random; four hundred arrive at once every nine seconds, and two thousand in the middle. Memory
is too small for that, so requests are preempted, and some clients disconnect. The shorter logs are its
beginning.

Measurements, in the page that `to_html` writes:

- first picture: from the beginning of the page's loading to the first drawn step; and until all is
  read
- seek: to random steps, all work on the frame: folding, drawing and writing, layout and painting; of
  that the model alone, which folds from the nearest copy of the state
- CPU time, which other load on the machine changes little: of loading, and of one frame while the
  cursor goes to random steps (`seek`) or from step to step (`play`). `page` is the page's thread,
  `script`, `style` and `layout` are parts of it, `processes` are all that draw the page. Medians of
  several rounds; with `--before` also those of another version, measured in turns, and the ratios
- memory: JavaScript's heap and its buffers after a collection, and the tab's largest resident size
"""

import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.harness import FOLDER, save, status
from engine import Cost, EngineConfig, Workload, simulate
from engine.simulation.workload import Abort, Input, bursts, lognormal, poisson
from visualizer.html import MODULE, to_html
from visualizer.logs import ClusterLogLike, LogLike
from visualizer.pictures import chromium_path
from visualizer.sources import read_source

SEED = 4

_WATCH = """
new MutationObserver(() => {
  const board = document.querySelector(".underglass");
  if (board?.dataset.ready === "true") window.drawn ??= performance.now();
  if (board?.dataset.loaded === "1") window.read ??= performance.now();
}).observe(document, { subtree: true, childList: true, attributes: true });
"""

# `next` resolves in the next frame, before whatever is asked for later is drawn; `after` when all of
# the frame is done.
_SEEK = """async (steps) => {
  const { board } = window, { model } = board;
  const next = () => new Promise((done) => requestAnimationFrame(done));
  const after = () => new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done(performance.now());
    port2.postMessage(null);
  });
  const whole = [], folding = [];
  for (const step of steps) {
    await next();
    const begin = performance.now();
    await model.fetch(step);
    model.frame(step);
    folding.push(performance.now() - begin);
    const frame = next().then(() => performance.now());
    board.goTo(step);
    const drawing = await frame;
    whole.push((await after()) - drawing + folding.at(-1));
  }
  return { whole, folding };
}"""

# A step in each frame.
_MOVE = """async (steps) => {
  const next = () => new Promise((done) => requestAnimationFrame(done));
  for (const step of steps) {
    window.board.goTo(step);
    do await next();
    while (window.board.store.step !== step);
  }
  await next();
}"""
ROUNDS, MOVES = 8, 24


def workload() -> Workload:
    """Generate some 20,600 requests, a fifth of them in bursts."""
    rng = random.Random(SEED)

    def some(count: int, begin_ms: float, seed: int, **options: Any) -> list[Input]:
        drawn = Workload.generate(
            count, groups=60, shared_tokens=32, seed=SEED + seed, **options
        ).inputs
        for one in drawn:
            one.at_ms += begin_ms
        return drawn

    crowd = {"prompt": lognormal(40, 0.7, 200), "output": lognormal(60, 0.7, 300)}
    arrivals = some(
        13_000,
        0,
        0,
        arrivals=poisson(100),
        prompt=lognormal(30, 0.7, 200),
        output=lognormal(48, 0.7, 300),
    )
    arrivals += some(5_600, 1500, 1, arrivals=bursts(400, 9000), **crowd)
    arrivals += some(2_000, 70_000, 2, arrivals=bursts(2000, 1), **crowd)
    arrivals.sort(key=lambda one: one.at_ms)
    leave: list[Input] = [
        Abort(at_ms=one.at_ms + rng.expovariate(1 / 400), request=number)
        for number, one in enumerate(arrivals, start=1)
        if rng.random() < 0.03
    ]
    return Workload(sorted(arrivals + leave, key=lambda one: one.at_ms))


def big_log(least: int) -> list[bytes]:
    """The lines of a log of at least so many events. The longest is made once, in a minute or two."""
    # Each input writes an event when it arrives, so the later inputs change none of the first events.
    inputs = workload().inputs[:least]
    file = FOLDER / f"board_of_{len(inputs)}.jsonl"
    if not file.exists():
        config = EngineConfig(
            token_budget=512, max_batch_size=160, max_kv_tokens=4096 * 4, block_size=4
        )
        log = simulate(Workload(inputs), config, cost=Cost(1, 0.01, 0.02, 0.00002, 1e-6))
        FOLDER.mkdir(parents=True, exist_ok=True)
        log.save(file)
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) >= least, f"the log has only {len(lines)} events, not {least}"
    return lines


def percentiles(values: list[float]) -> dict[str, float]:
    """Median and 95th percentile, in ms."""
    cuts = statistics.quantiles(values, n=20)
    return {"p50": round(cuts[9], 2), "p95": round(cuts[18], 2)}


def page_of(log: LogLike | ClusterLogLike, path: Path, module: str | None = None) -> None:
    """The exported page with this or another text of the module, and its board within reach."""
    text = to_html(log)
    if module is not None:
        text = text.replace(escaped(MODULE.read_text("utf-8")), escaped(module))
    text = text.replace("await mount(", "window.board = await mount(")
    path.write_text(text, "utf-8")


def escaped(module: str) -> str:
    return module.replace("</script", "<\\/script")


def measure(browser: Browser, path: Path, seeks: int) -> dict[str, Any]:
    """One page, from opening it to the end."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(_WATCH)
    page.on("pageerror", lambda error: print(f"page error: {error}", flush=True))
    meter = ThreadTime(page)
    page.goto(path.as_uri())
    page.wait_for_function("window.board?.model && window.read", timeout=120_000)
    load_cpu = meter.lap()["page"]
    rng = random.Random(SEED)
    first, last = page.evaluate("[board.model.firstStep, board.model.lastStep]")
    page.evaluate(_SEEK, [rng.randint(first, last) for _ in range(seeks // 6)])  # warm
    seek = page.evaluate(_SEEK, [rng.randint(first, last) for _ in range(seeks)])
    figures = {
        "first_picture_ms": round(page.evaluate("window.drawn")),
        "all_read_ms": round(page.evaluate("window.read")),
        "seek_ms": percentiles(seek["whole"]),
        "fold_ms": percentiles(seek["folding"]),
        "load_cpu_ms": round(load_cpu),
        **memory(page),
    }
    page.close()
    return figures


class ThreadTime:
    """CPU time of the page's main thread and its parts, and of all processes that draw the page."""

    PARTS: ClassVar = {
        "page": "TaskDuration",
        "script": "ScriptDuration",
        "style": "RecalcStyleDuration",
        "layout": "LayoutDuration",
    }

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        browser = page.context.browser
        assert browser is not None
        self._processes = browser.new_browser_cdp_session()
        self._last = dict.fromkeys([*self.PARTS, "processes"], 0.0)

    def lap(self) -> dict[str, float]:
        """Milliseconds since the last lap, or since the page began to load."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        known = {one["name"]: 1000 * float(one["value"]) for one in metrics}
        processes = self._processes.send("SystemInfo.getProcessInfo")["processInfo"]
        drawing = [one["cpuTime"] for one in processes if one["type"] in ("renderer", "GPU")]
        now = {part: known[name] for part, name in self.PARTS.items()}
        now["processes"] = 1000 * sum(drawing)
        passed = {part: now[part] - self._last[part] for part in now}
        self._last = now
        return passed


def moves(browser: Browser, paths: list[Path]) -> list[dict[str, float]]:
    """CPU time per frame of each page, measured in turns: the median of some rounds."""
    pages = [browser.new_page(viewport={"width": 1280, "height": 900}) for _ in paths]
    for page, path in zip(pages, paths, strict=True):
        page.add_init_script(_WATCH)
        page.goto(path.as_uri())
        page.wait_for_function("window.board?.model && window.read", timeout=120_000)
    meters = [ThreadTime(page) for page in pages]
    rng = random.Random(SEED)
    first, last = pages[0].evaluate("[board.model.firstStep, board.model.lastStep]")
    laps: list[dict[str, list[float]]] = [defaultdict(list) for _ in pages]
    for turn in range(ROUNDS + 1):  # the first one warms up
        begin = rng.randint(first, max(first, last - MOVES))
        kinds = {
            "seek": [rng.randint(first, last) for _ in range(MOVES)],
            "play": [min(last, begin + i) for i in range(MOVES)],
        }
        for kind, steps in kinds.items():
            for page, meter, found in zip(pages, meters, laps, strict=True):
                page.bring_to_front()
                page.evaluate(_MOVE, steps[:1])
                meter.lap()
                page.evaluate(_MOVE, steps)
                for part, value in meter.lap().items():
                    if turn:
                        found[f"{kind}_{part}_cpu_ms"].append(value / MOVES)
    for page in pages:
        page.close()
    return [{name: statistics.median(all_) for name, all_ in found.items()} for found in laps]


def compared(frames: list[dict[str, float]]) -> dict[str, float]:
    """The CPU times of one version, or of two and their ratios."""
    if len(frames) == 1:
        return {name: round(value, 2) for name, value in frames[0].items()}
    now, before = frames
    figures: dict[str, float] = {}
    for name, value in now.items():
        figures |= {name: round(value, 2), f"{name[:-3]}_before": round(before[name], 2)}
        figures[f"{name[:-3]}_ratio"] = round(value / before[name], 2) if before[name] else 1.0
    return figures


def memory(page: Page) -> dict[str, int]:
    """MB of JavaScript's heap and of its buffers, and the tab's largest resident size."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    return {
        "heap_mb": round(usage["usedSize"] / 1e6),
        "buffers_mb": round(usage.get("backingStorageSize", 0) / 1e6),
        "tab_mb": tab_peak_mb(page),
    }


def tab_peak_mb(page: Page) -> int:
    """The largest resident size that the page's process had."""
    browser = page.context.browser
    assert browser is not None
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    tabs = [one["id"] for one in processes if one["type"] == "renderer"]
    return max((status(tab)["VmHWM"] for tab in tabs), default=0) // 10**6


def table(figures: dict[str, Any]) -> None:
    """A column per size."""
    rows: dict[str, list[str]] = {}
    for size in figures["sizes"].values():
        for name, value in size.items():
            shown = (
                f"{value['p50']:g} / {value['p95']:g}" if isinstance(value, dict) else f"{value:,}"
            )
            rows.setdefault(name, []).append(shown)
    for name, values in rows.items():
        print(f"  {name:32}" + "".join(f"{value:>18}" for value in values))
    print("  (ms are p50 / p95)")


def main(
    events: Annotated[str, typer.Option(help="sizes of the logs")] = "10000,100000,1000000",
    seeks: Annotated[int, typer.Option(min=2, help="in each log")] = 200,
    before: Annotated[Path | None, typer.Option(help="board.js of another version")] = None,
) -> None:
    """Measure each size and print a column for it."""
    sizes = sorted(int(size) for size in events.split(","))
    lines = big_log(sizes[-1])
    figures: dict[str, Any] = {"bundle_bytes": MODULE.stat().st_size, "sizes": {}}
    with sync_playwright() as playwright:
        for size in sizes:
            log = read_source(b"".join(lines[:size]))  # all of it: `read_log` keeps the end
            path = FOLDER / f"board_{size}.html"
            page_of(log, path)
            flags = ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=flags)
            paths = [path]
            if before is not None:
                paths.append(path.with_stem(f"{path.stem}_before"))
                page_of(log, paths[1], before.read_text("utf-8"))
            whole = measure(browser, path, seeks)
            frames = compared(moves(browser, paths))
            figures["sizes"][str(size)] = {"events": size} | whole | frames
            browser.close()
            for one in paths:
                one.unlink()
    table(figures)
    print(f"  bundle: {figures['bundle_bytes']:,} bytes")
    save("board", figures)
