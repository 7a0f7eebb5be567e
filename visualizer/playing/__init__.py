"""The playground: controls for a workload, the board of its run, and the previous run.

`rerun` starts engines, `controls` has the widgets for the settings, `numbers` compares two runs, and
`playground` is the widget itself.
"""
