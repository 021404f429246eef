# make run: set up and open the window (without a display: run the demo). make test: set up and run every check.
PYTHON ?= python3
VENV := .venv/bin
export PYTHONUNBUFFERED := 1

.PHONY: run test setup-run setup-test desktop demo format

run: setup-run
	$(VENV)/lathe

demo: setup-run
	$(VENV)/lathe demo

test: setup-test
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/lint-imports
	$(VENV)/python -m pytest -q -W error tests/unit
	QT_QPA_PLATFORM=offscreen $(VENV)/python -m pytest -q -W error tests/qt
	$(VENV)/python -m pytest -q tests/engine
	$(VENV)/python -m pytest -q tests/e2e

setup-run:
	@$(PYTHON) packaging/set_up.py run

setup-test:
	@$(PYTHON) packaging/set_up.py test

desktop: setup-run
	@$(VENV)/python packaging/desktop.py

format:
	$(VENV)/ruff format .
	$(VENV)/ruff check --fix .
