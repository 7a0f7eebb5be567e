"""The final project: a learner's parts make one engine, scored on eight workloads.

`README.md` says how it works for a learner and for a teacher. `python -m project` runs it, from the
repository's root with `notebooks` on PYTHONPATH, as `make score` does. Like the lessons, the project
is a part of the repository and not of the installed package.

    template.py    the learner's file before it has any part; `mine.py` is the learner's copy
    learner.py     loads it
    process.py     runs it in a process of its own
    uses.py        what it uses that no part needs
    parts.py       plugs its parts into the engine
    workloads.py   the eight workloads, their machines and their goals
    runs.py        one run, measured
    gates.py       what has to hold before a score counts
    tight.py       workloads with too little memory, for the gates
    scoring.py     seeds, points, total
    leaderboard.py lines: submit, verify, render
"""
