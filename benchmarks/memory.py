"""Soak test: short requests arrive, many disconnect early, and memory must not grow.

The bundled model serves as a server does: the engine's log is handed over step by step and a window
of it is kept. Resident memory is read from the operating system after a warm-up, in which the window
and the prefix cache fill up, and then repeatedly. Blocks are counted at the end, when the engine
is idle: all of them are free or cached, and once the cache is cleared all are free.
"""

import os
import random
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.report import panels, save
from engine import Engine, EngineConfig, SamplingParams
from engine.models import loader
from server.core.event_log import Outbox, Window

REQUESTS = int(os.environ.get("UNDERGLASS_SOAK_REQUESTS", "20000"))  # fewer for a quick look
WARM_UP = REQUESTS // 5
WINDOW_EVENTS = 10_000
WAITING = 64  # requests kept in the queue or in the batch
CONFIG = EngineConfig(token_budget=256, max_batch_size=32, max_kv_tokens=8192)


class Soak:
    """Submit requests of a few tokens, some with a shared prefix, a fifth of them aborted."""

    def __init__(self, engine: Engine, outbox: Outbox) -> None:
        self.engine = engine
        self._outbox = outbox
        self.window = Window(WINDOW_EVENTS)
        self.submitted = 0
        self.aborted = 0
        self._rng = random.Random(0)
        self._stems = [self._letters(48) for _ in range(8)]
        self._leaving: dict[int, int] = {}  # request -> the step before which its client leaves

    def step(self) -> None:
        """Fill the queue, abort some requests, run one step, hand over the log."""
        while len(self.engine.requests) < WAITING and self.submitted < REQUESTS:
            self._submit()
        for request, step in list(self._leaving.items()):
            if step <= self.engine.step_count:
                del self._leaving[request]
                self.aborted += self.engine.abort(request)
        self.engine.step()
        self.window.extend(self._outbox.take())

    def _submit(self) -> None:
        rng = self._rng
        stem = rng.choice(self._stems) if rng.random() < 0.5 else []
        params = SamplingParams(max_tokens=rng.randint(1, 12), n=rng.choice((1, 1, 1, 2)))
        request = self.engine.submit(stem + self._letters(rng.randint(4, 24)), params)
        self.submitted += 1
        if rng.random() < 0.25:
            self._leaving[request.id] = self.engine.step_count + rng.randint(0, 12)

    def _letters(self, count: int) -> list[int]:
        return [97 + self._rng.randrange(26) for _ in range(count)]


def resident_mib() -> float:
    """The memory of this process that is in RAM, in MiB. Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Print memory after the warm-up and at the end, and where the blocks are."""
    runner, tokenizer = loader.load("bundled")
    outbox = Outbox()
    engine = Engine(runner, CONFIG, tokenizer=tokenizer, log=outbox)
    soak = Soak(engine, outbox)
    at: list[int] = []
    resident: list[float] = []
    every = max(1, REQUESTS // 200)
    with tqdm(total=REQUESTS, desc="soak", unit="request", leave=False) as bar:
        while soak.submitted < REQUESTS or engine.has_work():
            soak.step()
            bar.update(soak.submitted - bar.n)
            if not at or soak.submitted >= at[-1] + every:
                at.append(soak.submitted)
                resident.append(resident_mib())
    resident.append(resident_mib())
    at.append(soak.submitted)

    free, cached = len(engine.pool.free), engine.tree.unlocked_blocks
    engine.clear_prefix_cache()
    warm = [(x, y) for x, y in zip(at, resident, strict=True) if x >= WARM_UP]
    slope, _ = np.polyfit([x for x, _ in warm], [y for _, y in warm], 1)
    figures: dict[str, object] = {
        "requests": soak.submitted,
        "aborted": soak.aborted,
        "steps": engine.step_count,
        "events": soak.window.next_seq,
        "resident_mib_after_warm_up": warm[0][1],
        "resident_mib_at_the_end": warm[-1][1],
        "growth_kib_per_1000_requests": float(slope * 1000 * 1024),
        "blocks": engine.pool.num_blocks,
        "blocks_free": free,
        "blocks_cached": cached,
        "blocks_free_after_clearing": len(engine.pool.free),
    }
    print(
        f"{soak.submitted} requests, {soak.aborted} aborted, {engine.step_count} steps\n"
        f"resident memory: {warm[0][1]:.1f} MiB after {warm[0][0]} requests, {warm[-1][1]:.1f} MiB at "
        f"the end; growth {slope * 1000 * 1024:.0f} KiB per 1,000 requests\n"
        f"blocks: {free} free + {cached} cached of {engine.pool.num_blocks}; after clearing the cache "
        f"{len(engine.pool.free)} free"
    )
    plot, (axes,) = panels(["Resident memory in a soak"], "requests submitted", "MiB")
    axes.plot(at, resident)
    axes.axvline(warm[0][0], linestyle=":", linewidth=1)
    axes.set_ylim(bottom=0)
    save("memory", figures, plot)


if __name__ == "__main__":
    main()
