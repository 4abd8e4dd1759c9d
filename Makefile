# Every target sets up what it needs in .venv; nothing but Python >= 3.11 and make is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Not compiled when installed: that takes a minute, for many thousand modules that nobody imports.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# Tests of one file run in one worker, which solves a channel once; tests/conftest.py decides the order
# and how many workers there are.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: help demo quick test versions soak mutants check release-check upgrade format docs bench clean

help:
	@echo "make demo    one page with the paper's Figure 1 on digits, digits from one message per person, a year of weeks"
	@echo "make quick   the tests that are not slow, without torch and Flower: after every edit"
	@echo "make test    the whole test suite, doctests and README snippets included"
	@echo "make versions  the quick tests with Python 3.12 and 3.13, where they are installed; before a release"
	@echo "make soak    what repeats: kills under load, long waits, notebooks, every snippet (half an hour); before a release"
	@echo "make mutants one line broken at a time, some 700 times: the tests must notice (20 minutes); before a release"
	@echo "make check   formatting, lint, layers, types, tests and a strict build of the documentation"
	@echo "make release-check  wheel, sources and npm package built and checked; the README run with newest and lowest versions"
	@echo "make upgrade pin the newest versions that resolve together in constraints.txt; then run make test"
	@echo "make bench   speed, as ratios against reference implementations in one run"
	@echo "make format  apply the formatting that make check asks for"
	@echo "make docs    serve the documentation on a local port"
	@echo "make clean   remove the virtual environment and everything built"

$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sstq needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	touch $@

# One stamp per extra: installed again only when the project's requirements change.
$(VENV)/extra-%: $(VENV)/made pyproject.toml constraints.txt
	@echo "Installing sstq[$*] into $(VENV) ..."
	$(INSTALL) --editable '.[$*]'
	touch $@

demo: $(VENV)/extra-paper
	$(BIN)/python -m paper demo --output demo

quick: $(VENV)/extra-quick
	$(BIN)/python -m sstq.kernels > /dev/null
	$(PYTEST) -m "not slow and not soak" --doctest-ignore-import-errors

test: $(VENV)/extra-test
	$(BIN)/python -m sstq.kernels > /dev/null
	$(PYTEST)

versions:
	@for version in 3.12 3.13; do \
		if python$$version -c '' 2> /dev/null; then \
			$(MAKE) quick PYTHON=python$$version VENV=.venv-$$version || exit 1; \
		else \
			echo "There is no python$$version: nothing was tested with it."; \
		fi; \
	done

soak: $(VENV)/extra-test
	$(BIN)/python -m sstq.kernels > /dev/null
	$(PYTEST) -m soak

mutants: $(VENV)/extra-test
	$(BIN)/python -m sstq.kernels > /dev/null
	$(BIN)/python -m tests.mutants

check: $(VENV)/extra-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/python -m sstq.kernels > /dev/null
	$(PYTEST)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# An environment of its own: twine needs a newer packaging than Flower allows.
release-check:
	$(MAKE) VENV=.venv-release .venv-release/extra-release
	.venv-release/bin/python -m tests.release_check

upgrade: $(VENV)/extra-check
	$(BIN)/python -m tests.upgrade

format: $(VENV)/extra-check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/extra-docs
	$(BIN)/mkdocs serve

bench: $(VENV)/extra-test
	@$(INSTALL) --only-binary :all: fht-cpu || echo "There is no wheel of fht-cpu for this machine: measuring without it."
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-* site dist demo
