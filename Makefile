# One-word verbs. Each makes what it needs in .venv, in stages, so that the first act of the demo need not wait for torch.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt
EDITABLE := $(PIP) --no-build-isolation -e

.PHONY: help demo test check docs bench proof clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    a sheet, a picture, then a GPT trained while you wait (TEXT=path for your own text)"
	@echo "make test    the laws, in small forms"
	@echo "make check   style, types, one-way imports"
	@echo "make docs    the generated parts of the docs, and of all pages the site: site/index.html"
	@echo "make bench   list the measurements; BENCH=name runs one, with ARGS=..."
	@echo "make proof   every law in its whole form"
	@echo "make clean   forget $(VENV) and the caches"

demo: $(VENV)/.base
	@$(BIN)/plainformer demo --act one
	@$(MAKE) -s --no-print-directory $(VENV)/.torch
	@$(BIN)/plainformer demo --act two $(if $(TEXT),--text "$(TEXT)")

test: $(VENV)/.test
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

check: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo --no-cache

docs: $(VENV)/.test
	@$(BIN)/python docs/build.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/web/mkdocs.yml

bench: $(VENV)/.test
ifdef BENCH
	@$(BIN)/python bench/$(BENCH).py $(ARGS)
else
	@for file in bench/*.py; do \
	    test -e "$$file" || { echo "no measurements yet"; continue; }; \
	    echo "make bench BENCH=$$(basename "$$file" .py)	$$(sed -n '1s/"""//gp' "$$file")"; \
	done
endif

proof: $(VENV)/.test
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "proof or not proof"

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests docs bench -name __pycache__ -type d -prune -exec rm -rf {} +

# The stages. A stamp is touched last, so an install that failed is tried again.
$(VENV)/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("plainformer needs Python 3.10 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	@echo "installing plainformer into $(VENV) (numpy, safetensors, rich)" >&2
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) hatchling editables
	@$(EDITABLE) .
	@touch $@

$(VENV)/.torch: $(VENV)/.base
	@echo "installing PyTorch, about 200 MB (2 to 3 GB where pip finds the CUDA build), once" >&2
	@$(EDITABLE) ".[torch]"
	@touch $@

$(VENV)/.test: $(VENV)/.torch
	@echo "installing what the tests need (pytest, hypothesis, transformers, matplotlib)" >&2
	@$(EDITABLE) ".[test]"
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@echo "installing ruff, mypy, import-linter" >&2
	@$(EDITABLE) ".[test,dev]"
	@touch $@
