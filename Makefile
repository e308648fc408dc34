# `make run` and `make test` are all that is needed; each installs first. `make help` lists the rest.
PORT ?= 8080
# host:port of a broker of a Kafka 4 cluster to observe; none without
KRAFT ?=
DATA_DIR ?= $(if $(KRAFT),.confplane-kraft,.confplane)
PYTEST_ARGS ?=
T ?=
N ?= 30
BENCH_ARGS ?=
FAULTS_ARGS ?=

PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
# Each process has its own servers; much of a test is waiting for these, so "auto" is more than the processors.
# tests/conftest.py says how many, and hands out the files.
PARALLEL := --numprocesses auto --maxprocesses 4
# The folders of the gate; tests/suites.py has them as well.
GATE := tests/unit tests/store tests/audit tests/contract tests/integration

# Files that one process has compiled need not be compiled again by the many others of a run.
unexport PYTHONDONTWRITEBYTECODE

STYLE := $(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && \
	$(PYTHON) -c "import importlinter.cli as c; c.lint_imports_command()"
TYPES := $(PYTHON) -m mypy

.DEFAULT_GOAL := help
.PHONY: help install run test suites test-all test-long stress bench faults lint format lock audit openapi chart docs images clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  make run PORT=8081 DATA_DIR=/tmp/other     another port, another directory for the data"
	@echo "  make run KRAFT=localhost:9092              see a Kafka 4 cluster of your own; nothing is written to it"
	@echo "  make test PYTEST_ARGS='-k quotas -x'       some of the tests of the gate"
	@echo "  make suites PYTEST_ARGS=tests/kraft        one of the other suites"
	@echo "  make stress T=tests/unit/test_suites.py N=30   is a test stable?"
	@echo "  make bench BENCH_ARGS='reads --rounds 9'   some of the figures"
	@echo "  make faults FAULTS_ARGS='--seed 7 --rounds 50'   which faults, and how many; --help tells more"

install: ## Check the machine, make .venv and install into it what the lock names
	@sh .ci/install.sh

run: ## Start everything on this machine and serve on http://127.0.0.1:8080
	@sh .ci/install.sh --port '$(PORT)' && exec $(PYTHON) -m confplane dev --port '$(PORT)' --data-dir '$(DATA_DIR)' \
		$(if $(KRAFT),--kraft '$(KRAFT)')

test: install ## Run the gate: the linters, the type checker, and the tests that every change must pass
	@mkdir -p .tools; $(PYTHON) -m tests.support.tools kafka >.tools/fetch.log 2>&1 & \
	fetching=$$!; \
	$(TYPES) >.tools/types.log 2>&1 & \
	checking=$$!; \
	trap 'kill "$$fetching" "$$checking" 2>/dev/null; wait' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	tested=1; { $(STYLE); } && { $(PYTEST) -m "not long" $(PARALLEL) $(GATE) $(PYTEST_ARGS); tested=$$?; }; \
	wait "$$checking"; checked=$$?; cat .tools/types.log; exit "$$((tested ? tested : checked))"

suites: install ## Run all other tests except for the long ones: Kafka, Spark, faults, browsers, whole processes
	@$(PYTHON) -m tests.support.tools >.tools/fetch.log 2>&1 & \
	fetching=$$!; \
	trap 'kill "$$fetching" 2>/dev/null; wait' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	$(PYTHON) -m tests.suites $(PARALLEL) $(PYTEST_ARGS)

test-all: test suites ## Run the gate, and then the other suites

test-long: install ## Run the tests of full size, minutes each
	@$(PYTEST) -m long $(PYTEST_ARGS)

stress: install ## Run one test, T, N times beside busy processes
	@$(PYTHON) -m tests.stress '$(T)' '$(N)'

bench: install ## Print the figures of performance, each beside its reference
	@$(PYTHON) -m tests.bench $(BENCH_ARGS)

faults: install ## Kill, pause and cut off whatever writes are made of, and check what is left
	@$(PYTHON) -m tests.faults $(FAULTS_ARGS)

lint: install ## Run the linters and the type checker
	@$(STYLE) && $(TYPES)

format: install ## Format the code
	@$(PYTHON) -m ruff format .
	@$(PYTHON) -m ruff check --fix .

lock: ## Write the locks anew; UPGRADE=1 takes the newest versions
	@sh .ci/lock.sh $(if $(UPGRADE),--upgrade)

audit: ## Look the locked requirements up in PyPI's advisories
	@sh .ci/audit.sh

openapi: install ## Write openapi/ from the code, and the client library's types from that
	@$(PYTHON) -m confplane openapi > openapi/openapi.yaml.new && mv openapi/openapi.yaml.new openapi/openapi.yaml
	@$(PYTHON) -m tests.unit.client.generate

chart: install ## Write the chart's values, their schema and their tables from deploy/helm/values.schema.yaml
	@$(PYTHON) -m tests.deploy.generate

docs: install ## Build the documentation site in .site/
	@$(PYTHON) -m tests.docs.site

images: ## Build the images confplane and confplane-rollups, with docker or buildah; BASE=... for another base
	@sh deploy/images/build.sh

clean: ## Remove .venv and the caches; the data in .confplane stays
	rm -rf .venv .site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
