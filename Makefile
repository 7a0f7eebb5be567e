# `make lab` and `make test` set up everything they need. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.bench-installed
FRONTEND := visualizer/frontend
NODE_MODULES := $(FRONTEND)/node_modules/.installed
BUNDLE := visualizer/static/board.js
NODE_CLIENTS := build/clients/node/requirements-node.txt
NPM := cd $(FRONTEND) && PATH="$(CURDIR)/$(BIN):$$PATH" npm

# What the recordings in tests/fixtures/parity are made with; both are too large for .venv.
VLLM_PYTHON ?= $(PYTHON)
SGLANG ?= /tmp/sglang

# Jupyter will not run as root unless told to; a container or a fresh machine often is root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root,)

.PHONY: help setup lab notebooks pictures slides solutions contents clients fields test test-fast test-notebooks test-browser test-frontend soak check \
  check-frontend record-vllm record-vllm-run record-vllm-examples record-sglang record-sglang-events \
  serve bench bundle clean \
  score submit verify rescore leaderboard

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(INSTALLED) $(BUNDLE) ## make .venv, install everything into it, build the front end

$(INSTALLED): pyproject.toml constraints.txt notebooks/lab-overrides.json
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Underglass needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up: about 2.5 GB in .venv, most of it PyTorch; a few minutes, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[lab,dev]'
	@mkdir -p $(VENV)/share/jupyter/lab/settings  # no question about news, no look for updates
	@cp notebooks/lab-overrides.json $(VENV)/share/jupyter/lab/settings/overrides.json
	@touch $@

lab: setup ## open your copy of the lessons in JupyterLab; FRESH=04 puts one aside and makes it anew
	@PYTHONPATH=notebooks $(BIN)/python -m authoring.workbook $(if $(FRESH),--fresh $(FRESH))
	PYTHONPATH="$(CURDIR)/notebooks" $(BIN)/jupyter lab $(AS_ROOT) --notebook-dir=. \
	  --LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate \
	  --LabApp.extension_manager=readonly --LabApp.default_url=/lab/tree/workbook/00_first_look.ipynb \
	  $(LAB_ARGS)

notebooks: setup ## run the lessons in Chromium and store their outputs and pictures; LESSONS="04 05" for some
	PYTHONPATH=notebooks $(BIN)/python -m authoring $(LESSONS)

pictures: setup ## take the README's pictures of the board in Chromium, the moving one too
	PYTHONPATH=notebooks $(BIN)/python -m authoring.pictures

slides: setup ## write the slides of each session into build/slides, for Marp
	PYTHONPATH=notebooks $(BIN)/python -m authoring.slides

solutions: setup ## write docs/solutions.md from the solutions, the checks and the recorded wrong answers
	PYTHONPATH=notebooks $(BIN)/python -m authoring.solutions

contents: setup ## write the contents notebook from the lessons
	PYTHONPATH=notebooks $(BIN)/python -m authoring.contents

test: test-fast test-frontend test-notebooks test-browser ## run all tests

test-fast: setup $(NODE_CLIENTS) ## engine, server and visualizer
	$(BIN)/pytest tests -m "not browser" -n 2 --dist loadfile --no-loadscope-reorder -q $(PYTEST_ARGS)

test-frontend: setup ## the ES module's own tests
	$(BIN)/node --test --test-reporter=dot "$(FRONTEND)/test/**/*.test.js"

test-notebooks: setup ## run every lesson from top to bottom
	UNDERGLASS_REVEAL=1 $(BIN)/pytest --nbval-lax --nbval-current-env --nbval-cell-timeout=60 -n 2 --dist loadscope -q notebooks

test-browser: setup ## pages, widgets and lessons in Chromium
	$(BIN)/pytest tests -m browser -n 2 --dist loadfile -q -rs $(PYTEST_ARGS)

clients: setup ## run other projects' clients against a server; CLIENTS="guidellm aiperf" for some, "--gateway" for two replicas
	$(BIN)/python -m tests.clients $(CLIENTS)

$(NODE_CLIENTS): tests/clients/requirements-node.txt $(INSTALLED)
	@$(BIN)/python -m tests.clients.environments node
	@touch $@

soak: setup ## the same properties on many more cases
	$(BIN)/pytest tests/engine -m "not browser" --soak -q -s -k "random_workloads" --timeout=3600 $(PYTEST_ARGS)
	$(BIN)/pytest tests/engine/compute -m soak --soak -q --timeout=3600 $(PYTEST_ARGS)
	$(BIN)/pytest tests/project tests/server/test_fuzz.py --soak -q -s --timeout=3600 $(PYTEST_ARGS)

record-vllm: ## record vLLM's decisions for tests/parity; VLLM_PYTHON=a Python that has vllm
	PYTHONPATH=recorders/vllm $(VLLM_PYTHON) -m tests.parity.record_vllm $(RECORD_ARGS)

record-vllm-run: ## record a whole vLLM with the bundled model; VLLM_PYTHON as above
	PYTHONPATH=recorders/vllm $(VLLM_PYTHON) -m tests.parity.record_vllm_run $(RECORD_ARGS)

record-vllm-examples: setup ## record the runs of vLLM in the gallery; VLLM_PYTHON as above
	PYTHONPATH=recorders/vllm $(VLLM_PYTHON) recorders/vllm/examples.py tests/fixtures/vllm
	PYTHONPATH=recorders/vllm $(VLLM_PYTHON) -m tests.recorders.record_fixtures
	$(BIN)/python -m tests.recorders.scenarios

record-sglang: setup ## record SGLang's cache for tests/parity; SGLANG=a folder that has sglang
	$(BIN)/python -m tests.parity.record_sglang --sglang $(SGLANG) $(RECORD_ARGS)

record-sglang-events: setup ## record SGLang's KV events and metrics for tests/sources; SGLANG as above
	$(BIN)/python -m tests.parity.record_sglang_events --sglang $(SGLANG)

# The final project; `make help` lists its targets. BOARD=file for another leaderboard.
BOARD ?= project/leaderboard.jsonl
PROJECT := PYTHONPATH=notebooks PYTHONHASHSEED=0 $(BIN)/python -m project

score: $(INSTALLED) ## score project/mine.py against our solution; see project/README.md
	@$(PROJECT) score

submit: $(INSTALLED) ## score project/mine.py and append a line to the leaderboard: make submit NAME=Ada
	@$(PROJECT) score --submit "$(NAME)" --board "$(BOARD)"

verify: $(INSTALLED) ## run the leaderboard's lines again and compare
	@$(PROJECT) verify --board "$(BOARD)"

rescore: $(INSTALLED) ## score each name's best file anew: UNDERGLASS_SEED=secret make rescore
	@$(PROJECT) rescore --board "$(BOARD)"

leaderboard: $(INSTALLED) ## print the leaderboard, and write it as a page
	@$(PROJECT) leaderboard --board "$(BOARD)"

check: setup check-frontend ## format, lint, types, imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-frontend: setup ## format, lint and types of the JavaScript
	$(NPM) run --silent check

bundle: $(BUNDLE) ## build visualizer/static from visualizer/frontend

$(BUNDLE): $(shell find $(FRONTEND)/src visualizer/scenarios -type f) engine/events/messages.json \
  $(FRONTEND)/build.mjs $(FRONTEND)/gallery.mjs $(NODE_MODULES)
	$(BIN)/node $(FRONTEND)/build.mjs

$(NODE_MODULES): $(FRONTEND)/package-lock.json | $(INSTALLED)
	@echo "Installing what builds the board (about 110 MB)."
	$(NPM) ci --no-audit --no-fund --silent
	@touch $@

serve: setup ## serve the bundled model on port 8000
	$(BIN)/underglass serve $(SERVE_ARGS)

fields: setup ## write the table of request fields into docs/clients.md
	$(BIN)/python -m tests.clients.fields

bench: $(BENCH_INSTALLED) ## measure the figures that the README states
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

$(BENCH_INSTALLED): $(INSTALLED)
	@echo "Adding matplotlib and llama.cpp to .venv: llama.cpp compiles for some minutes the first time."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' || \
	  { echo "llama.cpp could not be built (it needs a C++ compiler); the figures go without it."; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt matplotlib; }
	@touch $@

clean: ## remove what setup made
	rm -rf $(VENV) $(FRONTEND)/node_modules visualizer/static
