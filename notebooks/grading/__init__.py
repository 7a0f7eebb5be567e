"""Grade a class's notebooks: `underglass grade FOLDER`.

`submissions.py` finds the notebooks of a folder. `runner.py` starts a process for each and watches its
limits. In that process, `isolation.py` takes away what the system lets it take away, `needed.py` picks
the cells' statements that the learner's part needs, and `child.py` runs them and the lesson's check.
`table.py` writes the rows.

The limits stop accidents and simple tricks. They are not a security boundary: docs/teaching.md says
what hostile code can still do.
"""
