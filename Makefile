# Every target sets up what it needs in .venv; none needs another to have been typed before.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Modules are compiled once, not anew by each of the hundreds of processes that the tests start,
# also where the machine's environment has it otherwise.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FAST := not spark and not server and not simulation and not soak
# Folders of slow tests only: importing them to deselect all of them costs seconds in every worker.
SLOW_ONLY := $(foreach folder,spark integration end_to_end simulation,--ignore=tests/$(folder))
SLOW := (spark or server or simulation) and not soak
WORKERS ?= 2
# A file's tests share its servers. Files are taken in our order (tests/order.py), the long ones
# first: one of them at the end would be run while the other worker has nothing left.
BY_FILE := --dist loadfile --no-loadscope-reorder
# Tests write their files in memory, where there is such a place with room: no test can see whether
# a disk has kept what was synced, and waiting for it was a quarter of the time of many of them.
# Filling the place must leave the machine some memory: what a server of a test writes without an
# end has once taken all of it, and Spark with it.
MEMORY_KB := 4000000
MEMORY := $(shell test -w /dev/shm && test "$$(df --output=avail /dev/shm | tail -n 1)" -gt $(MEMORY_KB) && test "$$(df --output=size /dev/shm | tail -n 1)" -lt "$$(awk '/^MemTotal/ { print int($$2 * 2 / 3) }' /proc/meminfo)" && echo TMPDIR=/dev/shm)
BENCH ?= --quick

.PHONY: help setup java psql dbt mariadb redis chromium kafka test test-fast test-slow lint format demo bench bench-peers soak clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

setup: $(READY) java psql dbt mariadb redis chromium ## make .venv ready, at the pinned versions

$(READY): pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV)
	@touch $@

java:
	@scripts/setup --java

psql:
	@scripts/setup --psql

dbt: ## dbt in build/dbt, for the test that runs it
	@scripts/setup --dbt

mariadb:
	@scripts/setup --mariadb

redis:
	@scripts/setup --redis

chromium:
	@scripts/setup --chromium

kafka: java ## a real Kafka broker's jars in build/kafka, by Maven
	@scripts/kafka

# The order is that of the price of an answer: style, types, layers, pure tests, then servers.
test: java $(READY) psql dbt mariadb redis chromium ## lint, then every test but the soak
	@$(MAKE) lint
	@mkdir -p build
	@scripts/kafka --quiet
	@$(MEMORY) $(BIN)/python -m pytest -m "$(FAST)" $(SLOW_ONLY) -n $(WORKERS) --dist worksteal 2>&1 | tee build/test-fast.log
	@$(MEMORY) $(BIN)/python -m pytest -m "$(SLOW)" -n $(WORKERS) $(BY_FILE) 2>&1 | tee build/test-slow.log
	@echo "without Spark and servers:         $$(tail -n 1 build/test-fast.log)"
	@echo "Spark, servers and simulations:    $$(tail -n 1 build/test-slow.log)"

test-fast: $(READY) ## only the tests without Spark, servers and simulations (under a minute)
	@$(MEMORY) $(BIN)/python -m pytest -m "$(FAST)" $(SLOW_ONLY) -n $(WORKERS) --dist worksteal

test-slow: java $(READY) psql dbt mariadb redis chromium ## only those with Spark, servers and simulations
	@scripts/kafka --quiet
	@$(MEMORY) $(BIN)/python -m pytest -m "$(SLOW)" -n $(WORKERS) $(BY_FILE)

lint: $(READY) ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(READY) ## let ruff lay out and fix what it can
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

demo: java $(READY) ## an auction house, live in the browser and in psql; Ctrl+C stops it
	@$(BIN)/headwater demo

bench: java $(READY) ## every benchmark on small data, as tables (BENCH= for all of it); asserts nothing
	@$(BIN)/python benches/run_all.py $(BENCH)

# Each peer in an environment of its own (their pins contradict each other); one that does not
# install is left out of the table.
bench-peers: java $(READY) ## NEXMark beside Pathway, PyFlink and Spark's streaming, where they install
	@for peer in pathway:pathway flink:apache-flink; do \
	  folder=build/peers/$${peer%%:*}; \
	  test -e $$folder/.ready && continue; \
	  $(BIN)/python -m venv $$folder && $$folder/bin/pip install --quiet $${peer#*:} && touch $$folder/.ready || echo "$${peer#*:} does not install here"; \
	done
	@$(BIN)/python benches/peers.py $(BENCH)

soak: java $(READY) psql mariadb redis chromium ## the long tests
	@scripts/kafka --quiet
	@scripts/upstreams --quiet
	@$(BIN)/python -m pytest -m soak
	@HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest tests/properties -n $(WORKERS) --dist worksteal --timeout 3600

clean: ## remove .venv and everything that was made
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests benches -name __pycache__ -type d -prune -exec rm -rf {} +
