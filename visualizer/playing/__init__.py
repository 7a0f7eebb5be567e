"""The playground: controls over a workload, the board of its run, and the run before.

`rerun` starts engines, `controls` holds the widgets for the settings, `numbers` and `plots` compare two
runs, `playground` is the widget.
"""
