"""How many requests per second an engine can serve: sweep the arrival rate, and read the curves.

load.py       requests whose arrival rate can be changed, and nothing else
served.py     what became of each request: one row, whatever served it
simulated.py  the simulator as a target; `server.load.endpoint` is any OpenAI-compatible server
slo.py        the goals of the goodput
point.py      the figures of one rate
rates.py      which rate to measure next, and when to stop
curve.py      what was measured: the marks, the file, the comparison of two sweeps
sweep.py      the sweep
"""
