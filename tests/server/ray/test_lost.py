"""The gateway's side of Ray, with a driver that says what a test wants: Ray is lost and comes back."""

import asyncio
import os
import sys

from server.gateway import ray_cluster
from server.gateway.ray_cluster import RayOptions, RaySet

OPTIONS = RayOptions(
    replicas=2, max_replicas=None, address=None, threads=1, batch=4, drain_seconds=5
)
# The first driver loses Ray when the FIFO is opened; the second one has other replicas.
DRIVER = """
import os, pathlib, sys
sys.stdin.readline()
fifo = pathlib.Path(sys.argv[1])
def tell(*names):
    found = ",".join('"%s":{"url":"http://%s","lifeline":""}' % (one, one) for one in names)
    print('{"type":"Running","replicas":{%s},"desired":2}' % found, flush=True)
if fifo.exists():
    tell("a", "b")
    fifo.open().read()
    fifo.unlink()
    tell("b")
    print('{"type":"Failed","reason":"the raylet has ended"}', flush=True)
else:
    tell("c", "d")
sys.stdin.read()
"""


async def test_replicas_stay_until_others_run_although_ray_is_lost(monkeypatch, tmp_path, caplog):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-S", "-c", DRIVER, str(fifo)]
    monkeypatch.setattr(ray_cluster.child, "python", lambda _module: command)
    monkeypatch.setattr(ray_cluster, "_FIRST_PAUSE", 0.01)
    seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    replicas = RaySet(OPTIONS, {})
    with replicas.running():
        await replicas.start(
            lambda member: seen.put_nowait((member.id, member.url)),
            lambda id_, _why: seen.put_nowait((id_, "removed")),
        )
        assert [seen.get_nowait() for _ in "ab"] == [("0", "http://a"), ("1", "http://b")]
        await asyncio.to_thread(fifo.write_text, "")
        after = [await seen.get() for _ in range(4)]
    assert after[:2] == [("0", "removed"), ("1", "removed")]
    assert after[2:] == [("2", "http://c"), ("3", "http://d")]
    assert "the raylet has ended" in caplog.text
