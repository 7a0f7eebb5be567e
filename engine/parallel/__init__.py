"""One model on several devices: `Engine.load("bundled", config, parallel=Parallel(tensor=2))`.

    settings.py   Parallel: how a model is divided; it loads the model
    shards.py     which part of which weight a device has
    links.py      what devices send to each other, recorded
    decoder.py    the decoder of one device
    experts.py    experts that get their tokens by an all-to-all
    worker.py     the process of one device
    forks.py      processes that start without importing torch
    devices.py    the processes, as their engine sees them
    runner.py     the engine's runner
    lanes.py      who computed, sent and waited when; the formula of the bytes

Scheduler, cache, sampler and log are those of one device, because only the forward pass is divided.
"""

from engine.parallel.devices import DeviceError
from engine.parallel.settings import Parallel

__all__ = ["DeviceError", "Parallel"]
