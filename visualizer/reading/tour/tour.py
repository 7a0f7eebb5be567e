"""`read(log).tour`: what happened in a log, told in five to nine scenes.

tour = read(log).tour
print(tour)          each scene with its title and its sentences
tour[2].claims       the numbers and names of a scene, and what each of them counts
tour.as_dict()       what a page shows

The first scene is the run as a whole, the last one its end. Between them stand those that the log has
something for, in the order of their steps: what went wrong, the most expensive preemption, the longest
queue, the longest wait, evictions, hits, drafts, copies. A calm or very short run has fewer than five,
because nothing is told that did not happen. A scene whose facts a foreign log lacks is left out, and an
inferred fact has its half dot.
"""

from engine.core.log.log import EventLog
from visualizer.reading.tour import memory, run, waiting
from visualizer.reading.tour.drafts import the_drafts
from visualizer.reading.tour.faults import the_faults
from visualizer.reading.tour.material import Material
from visualizer.reading.tour.scene import Scene, Tour
from visualizer.reading.why.find import request_names

MOST = 9
# From the most telling one on; the largest step and a request's life are told if there is room.
_KINDS = (
    memory.the_preemption,
    waiting.the_queue,
    waiting.the_wait,
    memory.the_eviction,
    memory.the_hit,
    the_drafts,
    memory.the_copy,
)
_FILLERS = (run.the_life, run.the_largest_step)
_ENOUGH = 5


def tour_of(log: EventLog, most: int = MOST) -> Tour:
    """Return the tour of one engine's log: at most `most` scenes, none if no step has finished."""
    of = Material(log, request_names(log))
    first = run.the_run(of)
    if first is None:
        return Tour()
    last = run.the_end(of)
    room = most - 1 - (last is not None)
    found = the_faults(of)
    for kinds, limit in ((_KINDS, room), (_FILLERS, min(room, _ENOUGH - 2))):
        for scene in kinds:
            if len(found) < limit and (one := scene(of)) is not None and not _is_told(one, found):
                found.append(one)
    told = sorted(found[:room], key=_step)
    return Tour([first, *told, *([last] if last is not None else [])])


def _is_told(scene: Scene, found: list[Scene]) -> bool:
    """Return whether another scene has the picture of the same request's time."""
    return scene.panel == "time" and any(
        one.panel == "time" and one.requests == scene.requests for one in found
    )


def _step(scene: Scene) -> int:
    return scene.step or 0
