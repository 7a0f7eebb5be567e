"""Compare two cluster runs in a notebook; see `compared_clusters.py`."""

import base64

import traitlets

from visualizer.comparing.compared_clusters import ComparedClusters
from visualizer.html import CLUSTER_MODULE
from visualizer.logs import ClusterLogLike
from visualizer.packed import pack
from visualizer.widgets.picture import PictureWidget


class ClusterComparison(ComparedClusters, PictureWidget):
    """Two cluster logs: their totals, and the requests that changed most.

    A button opens the board of either run.
    """

    _esm = CLUSTER_MODULE
    kind = traitlets.Unicode("compare").tag(sync=True)
    a = traitlets.Unicode().tag(sync=True)  # the packed log in base64
    b = traitlets.Unicode().tag(sync=True)
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(
        self, a: ClusterLogLike, b: ClusterLogLike, names: tuple[str, str] = ("A", "B")
    ) -> None:
        ComparedClusters.__init__(self, a, b, names)
        packed = [base64.b64encode(pack(log)).decode() for log in self.logs]
        PictureWidget.__init__(self, a=packed[0], b=packed[1], names=self.names)
