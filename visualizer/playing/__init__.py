"""The playground: controls over a workload, the board of what they lead to, and the run before.

`rerun` starts engines, `controls` are the widgets for its settings, `numbers` and `plots` hold two runs
side by side, `playground` joins them.
"""
