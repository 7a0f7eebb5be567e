# `make TASK` is `python3 make.py TASK`, which works without make: see make.py. `make help` lists the tasks.

PYTHON ?= python3
.DEFAULT_GOAL := help

# Each name is a task, also where a folder has that name.
%: always
	@$(PYTHON) make.py $@
always Makefile: ;
.PHONY: always
