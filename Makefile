# Needs git, make and Python 3.11-3.14 (with its venv module); everything else goes into .venv.
#
# Written for the make 3.81 and the BSD tools that macOS ships, too.

VENV   ?= .venv
PYTHON ?=
ARGS   ?=
COVERAGE ?=
TIER   ?= quick
# Two workers more than cores: some tests wait for processes of their own.
JOBS   ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
# uv, taken from PyPI through pip: 13 s for a cold install where pip took 144 s (two busy cores).
# Bytecode is compiled, as pip does it: without, every process compiles what it imports where Python
# may not write caches, which cost twice the CPU.
# It reads no pip.conf: with a package mirror configured there, or INSTALLER=pip, pip is used.
INSTALLER ?= uv
# The versions that are installed, with hashes, which uv and pip demand: those that continuous
# integration tests. LOCK= (empty) takes the newest that pyproject.toml allows. It names no index:
# any mirror serves it.
LOCK   ?= requirements.lock

BIN     := $(VENV)/bin
SOURCES := pyproject.toml $(LOCK)
# The lock's part for these extras and groups; with --outside, what they name and the lock lacks.
LOCKED  = $(BIN)/python tools/locked.py --lock $(LOCK)
QUIETLY = --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help profile profile-local profile-kv test nightly tiers test-durations plant-faults ui lint types layers check audit dist lock local-model prose reference-models schemas docs install install-dev install-reference install-log-tools install-gateway-tools install-deploy-tools install-axe install-kv clean

help:  ## this list
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

profile: $(BIN)/.base  ## install into .venv, measure the two reference models, print the report
	@start=$$(date +%s); $(BIN)/contextcliff profile $(ARGS) || exit $$?; \
	echo "Measured and reported in $$(( $$(date +%s) - start )) s."

profile-local: local-model  ## measure a small real language model on Python files, on this machine's CPU
	@start=$$(date +%s); $(BIN)/contextcliff profile local $(ARGS) || exit $$?; \
	echo "Measured and reported in $$(( $$(date +%s) - start )) s."

# Each worker begins with long tests; a worker that is done takes over from the end of another's share.
# Counting lines costs half as much again on Python 3.11, so it waits to be asked for.
# glibc gives each thread a heap of its own and keeps what is freed there: two heaps a worker will do.
PYTEST = MALLOC_ARENA_MAX=2 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(if $(COVERAGE),--cov --cov-report=term)

profile-kv: $(if $(wildcard $(VENV)-kv/bin/python),$(BIN)/.base,install-kv)  ## measure what compressed KV caches cost the two reference models (kvpress, in .venv-kv)
	@start=$$(date +%s); $(BIN)/contextcliff profile kv-policies $(ARGS) || exit $$?; \
	echo "Measured and reported in $$(( $$(date +%s) - start )) s."

test: $(BIN)/.test  ## run the quick tests (TIER=commit: those of .ci/run; ARGS='-k word': some; COVERAGE=1: lines reached)
	$(PYTEST) --tier=$(TIER) $(ARGS)

nightly:  ## run all tests, with ten times the random examples; goes on where it was cut short
	.ci/nightly $(ARGS)

tiers: $(BIN)/.test  ## which tests run when, how many, and their CPU seconds
	@$(BIN)/python -m contextcliff_dagster_tests.support.tiers

test-durations: $(BIN)/.test  ## run all tests and record what they cost (ARGS=FILE: those of a file)
	$(PYTEST) --write-costs $(ARGS)

plant-faults: $(BIN)/.test  ## see that tests notice known faults (ARGS='budget-overrun': some)
	$(BIN)/python -m tools.plant_faults $(ARGS)

ui: $(BIN)/.base  ## open the Dagster UI on http://127.0.0.1:3000 with the assets loaded
	$(BIN)/contextcliff ui $(ARGS)

lint: $(BIN)/.dev  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.dev  ## mypy, strict outside defs/
	$(BIN)/mypy

layers: $(BIN)/.dev  ## no import against the order of the rooms
	$(BIN)/lint-imports --no-cache

check: lint types layers  ## lint, types and layers

audit: $(BIN)/.python  ## known vulnerabilities of the locked packages (pip-audit), where a service answers
	@. $(BIN)/.python; python=$(VENV)-audit/bin/python; locked=$(BIN)/.audit-locked.txt; \
	{ test -x $$python || $(BIN)/python -m venv $(VENV)-audit; } && \
	$(BIN)/python tools/locked.py --only audit > $$locked && \
	if [ "$$installer" = uv ]; then \
		$(BIN)/uv pip install --quiet --python $$python --require-hashes --requirement $$locked; \
	else \
		$$python -m pip install $(QUIETLY) --no-deps --require-hashes --requirement $$locked; \
	fi
	@$(BIN)/python .ci/audit.py $(VENV)-audit/bin/pip-audit requirements.lock

# What a release is made of: wheel and source, and the packages that the wheel brings, with licences.
dist: $(BIN)/.base  ## build a release into dist/: wheel, source, and a bill of materials (CycloneDX)
	@test ! -e dist || { echo "dist/ is there already: remove it first." >&2; exit 2; }
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .
	@$(BIN)/python tools/locked.py > dist/locked.txt && $(BIN)/uv venv --quiet dist/env && \
		for what in "--require-hashes --requirement dist/locked.txt" "--no-deps $$(echo dist/*.whl)"; do \
			$(BIN)/uv pip install --quiet --python dist/env/bin/python $$what || exit 1; \
		done
	$(BIN)/uv tool run --quiet --from cyclonedx-bom cyclonedx-py environment dist/env/bin/python \
		--pyproject pyproject.toml --mc-type application --output-file dist/sbom.cdx.json
	$(BIN)/uv tool run --quiet twine check --strict dist/*.whl dist/*.tar.gz
	@rm -r dist/env dist/locked.txt && ls dist

# Without torch and what it brings: the index's build is for GPUs, and CI takes the one for CPUs.
# The extras that are left out (vllm, ray, logs, ...) bound versions of what others need.
# The comments say what brings what: tools/locked.py needs them.
lock: $(BIN)/.python  ## write requirements.lock anew for pyproject.toml (ARGS=--upgrade: the newest versions)
	@echo "torch ; python_version < '3'" > $(BIN)/.without-torch
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --annotation-style line \
		--no-emit-index-url --custom-compile-command "make lock" --overrides $(BIN)/.without-torch \
		$(foreach extra,dev dg test local postgres prices docker k8s celery otel reference,--extra $(extra)) \
		$(foreach group,build uv audit,--group $(group)) \
		--output-file requirements.lock pyproject.toml $(ARGS)

local-model: $(BIN)/.local  ## fetch a small real language model (98 MB) into data/models, and what runs it
	@$(BIN)/python -m tools.fetch_local_model

prose: $(BIN)/.prose  ## fetch six public-domain novels (3.9 MB, with apt-get) into data/prose
	@$(BIN)/python -m tools.fetch_prose

reference-models: $(BIN)/.reference  ## train the reference models again and measure them (torch; up to an hour)
	$(BIN)/python -m tools.reference_models.train $(ARGS)
	$(BIN)/python -m tools.reference_models.measure

schemas: $(BIN)/.base  ## write the JSON Schemas of the result files from their declarations
	$(BIN)/python -m tools.write_result_schemas

docs: $(BIN)/.base  ## write docs/studies.md, models.md and the commands of cli.md from the code
	$(BIN)/python -m tools.write_reference_pages

install: $(BIN)/.base  ## only make .venv
install-dev: $(BIN)/.dev $(BIN)/.test  ## .venv with all that developing needs
install-reference: $(BIN)/.reference  ## .venv with torch and transformers, for the tests that compare with them

# They bound versions of what others need, hence an environment of their own for each of the three.
install-log-tools: extra = logs
install-log-tools:  ## .venv-logs with the tools whose logs the tests read (CONTEXTCLIFF_LOG_TOOLS)
install-gateway-tools: extra = gateway
install-gateway-tools:  ## .venv-gateway with LiteLLM's proxy, MLflow and W&B, for the tests (CONTEXTCLIFF_GATEWAY_TOOLS)
install-deploy-tools: extra = deploy
install-deploy-tools:  ## .venv-deploy with SkyPilot and kubernetes-validate, for the tests of docker/

install-log-tools install-gateway-tools install-deploy-tools: $(BIN)/.base
	@. $(BIN)/.python; tools=$$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', \
		'rb'))['project']['optional-dependencies']['$(extra)'])"); \
	$(BIN)/python -m venv $(VENV)-$(extra) && \
	if [ "$$installer" = uv ]; then \
		$(BIN)/uv pip install --quiet --python $(VENV)-$(extra)/bin/python $$tools; \
	else \
		$(VENV)-$(extra)/bin/python -m pip install $(QUIETLY) $$tools; \
	fi && echo "Installed $$tools into $(VENV)-$(extra)."

# Its package wants Playwright, which is not needed for the one file that it carries.
install-axe: $(BIN)/.base  ## .venv-axe with axe-core, for the tests of report.html
	@$(BIN)/python -m pip install $(QUIETLY) --no-deps --require-hashes --upgrade \
		--target $(VENV)-axe --requirement .ci/axe.txt && echo "Installed axe-core into $(VENV)-axe."

# Newer transformers break kvpress, hence an environment of its own. torch first: resolved along with
# the rest, an old one comes, built for CUDA.
install-kv: $(BIN)/.base  ## .venv-kv with kvpress, for engine kvpress (compressed KV caches)
	@tools=$$($(BIN)/python -c "import tomllib; print(*(repr(name) for name in tomllib.load(open( \
		'pyproject.toml', 'rb'))['project']['optional-dependencies']['kv']))"); \
	pip="$(VENV)-kv/bin/python -m pip install $(QUIETLY)"; \
	$(BIN)/python -m venv $(VENV)-kv && $$pip torch==2.13.0 && eval "$$pip $$tools" && \
	echo "Installed kvpress into $(VENV)-kv."

clean:  ## remove .venv, caches and coverage; data/ stays
	rm -rf $(VENV) $(VENV)-logs $(VENV)-gateway $(VENV)-deploy $(VENV)-axe $(VENV)-kv $(VENV)-audit $(VENV)-newest .nightly build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp file per extra: where it is newer than pyproject.toml there is nothing to do.
$(BIN)/.base: extra =
$(BIN)/.test: extra = test
$(BIN)/.dev: extra = dev,dg
$(BIN)/.reference: extra = reference
$(BIN)/.local: extra = local
$(BIN)/.prose: extra = prose

$(BIN)/.test $(BIN)/.dev $(BIN)/.reference $(BIN)/.local $(BIN)/.prose: $(BIN)/.base

# By the installer $(1): what is locked, by its hashes; then ourselves, which have none, built with the
# hatchling that has just come; then what an extra has outside the lock (torch). uv is locked, too.
# pip wants a hash for "package[extra]" that no lock gives: it takes the list as it is ($(2)). uv sees
# that the list is complete.
INSTALL = $(if $(LOCK),$(1) $(2) --require-hashes --requirement $@-locked.txt && \
	$(1) --no-deps --no-build-isolation --editable . && \
	{ test ! -s $@-outside.txt || $(1) --requirement $@-outside.txt; },$(1) --editable '.$(extra:%=[%])')

$(BIN)/.base $(BIN)/.test $(BIN)/.dev $(BIN)/.reference $(BIN)/.local $(BIN)/.prose: $(SOURCES) | $(BIN)/.python
	@start=$$(date +%s); \
	echo "Installing contextcliff-dagster$(extra:%=[%]) into $(VENV) ..."; \
	. $(BIN)/.python; \
	$(if $(LOCK),$(LOCKED) build $${installer#pip} $(extra) > $@-locked.txt && \
		$(LOCKED) --outside $(extra) > $@-outside.txt || exit 1;) \
	if [ "$$installer" = uv ] && \
	   $(call INSTALL,$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python); then :; \
	else \
		[ "$$installer" != uv ] || echo "uv could not install it: trying again with pip." >&2; \
		$(call INSTALL,$(BIN)/python -m pip install $(QUIETLY),--no-deps); \
	fi || { echo "The installation failed: see above." \
		"Where a locked version has no file for this machine: make LOCK= install" >&2; exit 1; }; \
	touch $@; echo "Installed in $$(( $$(date +%s) - start )) s."

# Some "python3.13" are version-manager shims that exist and fail: ask each what it really is.
$(BIN)/.python:
	@found=; \
	for python in $(BIN)/python $(PYTHON) python3.13 python3.14 python3.12 python3.11 python3 python; do \
		if "$$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
			>/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "No Python 3.11 to 3.14 with the venv module was found: install one" \
			"(Debian: python3 python3-venv) or name it: make PYTHON=/path/to/python3.12 ..." >&2; \
		exit 1; \
	fi; \
	start=$$(date +%s); \
	if [ "$$found" != $(BIN)/python ]; then \
		echo "Creating $(VENV) with $$("$$found" --version) ..."; \
		"$$found" -m venv $(VENV) || exit 1; \
	fi; \
	installer=$(INSTALLER); \
	if [ -n "$$PIP_INDEX_URL" ] || \
	   $(BIN)/python -m pip config list 2>/dev/null | grep -q '\.index-url='; then installer=pip; fi; \
	if [ $$installer = uv ]; then \
		$(if $(LOCK),$(LOCKED) --only uv,echo uv) > $(BIN)/.uv.txt; \
		$(BIN)/python -m pip install $(QUIETLY) $(if $(LOCK),--require-hashes) --requirement $(BIN)/.uv.txt \
			2> $(BIN)/.uv-said.txt || installer=pip; \
		cat $(BIN)/.uv-said.txt >&2; ! grep -q 'DO NOT MATCH THE HASHES' $(BIN)/.uv-said.txt || exit 1; \
	fi; \
	echo "installer=$$installer" > $@; \
	echo "Ready in $$(( $$(date +%s) - start )) s."
