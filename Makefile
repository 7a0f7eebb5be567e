# `make lab` and `make test` set up everything they need. `make help` lists the rest.
#
# make.py does the work, here and on machines without make: `make lab FRESH=04` is
# `python3 make.py lab FRESH=04`.

PYTHON ?= python3

TARGETS := help setup lab notebooks pictures slides solutions contents test test-fast test-core-314 test-frontend \
  test-notebooks test-browser clients soak record-vllm record-vllm-run record-vllm-examples \
  record-sglang record-sglang-events score submit verify rescore leaderboard check check-frontend \
  bundle site dist test-wheel serve fields bench clean

.PHONY: $(TARGETS)
$(TARGETS):
	@$(PYTHON) make.py $@
