# `make train` trains tic-tac-toe to perfect play, `make watch` and `make play` show it, `make test`
# runs the tests. All set up .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN_DIR ?= runs/tic_tac_toe-$(shell date +%Y%m%d-%H%M%S)

.PHONY: train watch play test near slow ray loggers accelerators apart pages docs lint clean

train: $(VENV)/.installed
	$(BIN)/jaxmarl-ppo train tic_tac_toe --run-dir $(RUN_DIR)
	$(BIN)/jaxmarl-ppo evaluate $(RUN_DIR)

# What is watched and played: RUN_DIR where it is given, else what `make train` trained last.
SHOWN_RUN = $(if $(filter file,$(origin RUN_DIR)),$$(ls -dt runs/tic_tac_toe-* 2>/dev/null | head -n 1),$(RUN_DIR))

watch play: $(VENV)/.installed
	@run="$(SHOWN_RUN)"; test -n "$$run" || { echo "nothing is trained yet; begin with: make train" >&2; exit 1; }; \
	set -x; $(BIN)/jaxmarl-ppo $@ "$$run"

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -m "not slow and not rare" -n auto --dist loadfile

# What the changes since the last commit can affect, or since another one: make near SINCE=main
near: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -m "not slow and not rare" -n auto --dist loadfile $$($(BIN)/python tests/support/near.py $(SINCE))

# What takes minutes: learning checks and rarer cases. PART=2/12 is the second of twelve parts of them.
PART = 1/1
slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -m "slow or rare" -n auto --dist worksteal --splitting-algorithm least_duration \
		--group $(word 1,$(subst /, ,$(PART))) --splits $(word 2,$(subst /, ,$(PART)))

# What needs Ray, a large library, is tested beside it: the files that skip something without it.
# `make slow` runs their slow and rare tests where Ray has been installed.
ray: $(VENV)/.installed-ray
	$(BIN)/python -m pytest -q -m "not slow and not rare" -n auto --dist loadfile $$(grep -rl 'importorskip("ray' tests --include='test_*.py')

# Likewise what logs to Weights & Biases and to MLflow.
loggers: $(VENV)/.installed-loggers
	$(BIN)/python -m pytest -q tests/runs/test_loggers.py

# Small workloads are compiled for GPUs and TPUs that need not be there. In an environment of its
# own, since with a TPU's compiler at hand JAX looks for a TPU at every start.
accelerators: $(VENV)-accelerators/.installed
	JAX_PLATFORMS=cpu $(VENV)-accelerators/bin/python -m pytest -q -n auto tests/bench/test_ahead.py

# VMAS pins a pyglet that other libraries are too new for, and Craftax needs pygame, of which mpe2 and
# magent2 need another edition under the same name.
apart: $(VENV)-apart/.installed
	$(VENV)-apart/bin/python -m pytest -q -n auto --dist loadfile tests/envs/adapters/test_vmas.py tests/envs/adapters/test_craftax.py

# Pages are tried in a browser: chromium and chromedriver, such as Debian's packages of these names.
pages: $(VENV)/.installed-pages
	$(BIN)/python -m pytest -q -n auto --dist loadfile $$(grep -rl 'importorskip("selenium' tests --include='test_*.py')

# The site, in site/: the documents, the reference, and the tutorial, every cell of which is run.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf $(VENV) $(VENV)-accelerators $(VENV)-apart build dist envs/dist site .cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml envs/pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./envs -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./envs -e '.[dev]'
	touch $@

$(VENV)/.installed-ray: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./envs -e '.[ray]'
	touch $@

$(VENV)/.installed-loggers: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./envs -e '.[wandb,mlflow]'
	touch $@

$(VENV)/.installed-pages: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./envs -e '.[pages]'
	touch $@

$(VENV)-accelerators/.installed: pyproject.toml envs/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-accelerators
	$(VENV)-accelerators/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./envs -e '.[gpu-aot,tpu-aot]' pytest pytest-xdist
	touch $@

# The constraint on pyglet is that of RWARE.
$(VENV)-apart/.installed: pyproject.toml envs/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-apart
	grep -v '^pyglet==' constraints.txt >$(VENV)-apart/constraints.txt
	$(VENV)-apart/bin/python -m pip install --quiet --disable-pip-version-check -c $(VENV)-apart/constraints.txt -e ./envs -e '.[vmas,craftax]' pytest pytest-xdist
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./envs -e '.[docs]'
	touch $@
