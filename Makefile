# `make figures` makes every figure offline. `make test` runs the tests in PROCESSES processes, by
# default one more than there are cores; with MARKS= it includes those left to CI. `make fast-test`
# runs those that are not slow, in one process per core; `make lowest-test` uses old packages.
# Variables: PYTHON (3.11 to 3.14), PRESET (smoke, quick, laptop, workstation, paper; by default that
# of config.yaml), CORES, PROCESSES, MARKS (of the tests, as for pytest's -m).

PYTHON ?= python3
PRESET ?=
CORES ?= all
# CI adds more cases of what the other tests cover: each published model and picture, 2000 random
# graphs, 5000 hostile configurations, the longer experiments killed and on an emulated GPU, awkward
# places, Slurm, conda.
MARKS ?= not exhaustive
PROCESSES ?= auto
BIN := .venv/bin
LOWEST := .venv-lowest
# The profile tries the same random examples each time; pytest without it searches for new ones.
# Containers often forbid bytecode, without which each process compiles all tests again.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --hypothesis-profile=ci
# The tests of code that computes numbers; other code only passes them on.
NUMBERS := $(addprefix tests/,adaptive complexity data free_probability gradients instrument kernels layer_features models papers probes training zoo)
UV_VERSION := 0.13.8

.PHONY: figures test fast-test portable-test lowest-test browser lint docs lock clean

figures: .venv/.ready
	$(BIN)/snakemake --cores $(CORES) $(if $(PRESET),--config preset=$(PRESET))

test: .venv/.ready
	$(PYTEST) -m "$(MARKS)" --durations=40

fast-test: .venv/.ready
	$(PYTEST) -m "not slow"

# As on processors with fewer instructions, where sums are taken in another order: the last bits of
# results differ there, which must not matter to any test.
portable-test: .venv/.ready
	ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) $(NUMBERS) -m "not slow"
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem $(PYTEST) $(NUMBERS) -m "not slow"

# With the lowest versions that pyproject.toml allows. Omitted are the reference pictures, made by
# one version of Matplotlib (its oldest warns of a newer pyparsing), and the test that a parameter
# added in place has a rule: with older PyTorch it takes the slower general way.
lowest-test: .venv/.ready
	$(PYTHON) -m venv --clear $(LOWEST)
	(echo "pyparsing>=3.2,<3.3"; grep -E '^(hypothesis|pytest|pytest-xdist)==' requirements.lock | tr -d '\\') > $(LOWEST)/tests.in
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra workflow --extra zoo pyproject.toml $(LOWEST)/tests.in --output-file $(LOWEST)/lowest.txt
	$(BIN)/uv pip sync --quiet --python $(LOWEST)/bin/python $(LOWEST)/lowest.txt
	cp $(BIN)/../lib/python*/site-packages/feature_alignment.pth $(LOWEST)/lib/python*/site-packages/
	$(LOWEST)/bin/snakemake --dry-run --config preset=smoke
	$(subst $(BIN),$(LOWEST)/bin,$(PYTEST)) $(NUMBERS) tests/pipeline tests/test_facade.py -m "not slow" --deselect tests/papers/test_pictures.py --deselect "tests/zoo/test_layers.py::TestLayers::test_rules[in place]" -W "ignore:Calling float on a single element Series:FutureWarning" -W ignore::pytest.PytestRemovedIn10Warning

# What the tests need to open the report in a headless Chromium, except Chromium itself; without it
# they are skipped.
browser:
	npm ci --prefix tests/pipeline/report/browser --ignore-scripts --no-audit --no-fund

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint
	PYTHONPATH=src $(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/basedpyright

# The documentation, in site/; a broken link is an error.
docs: .venv/.ready
	MPLBACKEND=agg NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# uv, not pip, so that every hash is checked and torch and torchvision come as a matching pair.
.venv/.ready: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "Python 3.11 to 3.14 is needed, which the locked packages work with: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet "uv==$(UV_VERSION)"
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/python -c 'import pathlib, site; pathlib.Path(site.getsitepackages()[0], "feature_alignment.pth").write_text("$(CURDIR)/src\n")'
	touch $@

lock: .venv/.ready
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --all-extras --python-version 3.11 pyproject.toml --output-file requirements.lock
	$(BIN)/python tools/licences.py

# Not .snakemake, whose records say of verdicts whether they are those of the present claims.
clean:
	rm -rf .venv $(LOWEST) .pytest_cache .ruff_cache .hypothesis site
