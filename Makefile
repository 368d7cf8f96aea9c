# timbrel's commands. `make` alone lists them. Needed: GNU Make and Python 3.11 or newer; all else goes into .venv.
#
#   PYTHON=python3.12     the interpreter that .venv is made with (default: the first that fits)
#   PIP_ARGS="..."        more arguments for pip, such as --extra-index-url
#   RUNTIME=cpu|gpu       onnxruntime or onnxruntime-gpu
#   CONFIG=cpu|gpu|tiny   the training configuration of `make pretrain`
#   SOURCES="..."         the notes it trains on (default: those that the configuration names)
#   COUNT=N               notes that the bundle is judged by in the end (default: 2000)
#   PYTEST_ARGS="..."     more arguments for pytest
#   BENCH_ARGS="..."      more arguments for each benchmark

PYTHON ?=
PIP_ARGS ?=
RUNTIME ?= cpu
CONFIG ?= cpu
SOURCES ?= $(if $(filter tiny,$(CONFIG)),soundfont:/usr/share/sounds/sf2/FluidR3_GM.sf2)
COUNT ?= 2000
RECORDINGS_orchestra := swesterfeld/spectmorph-instruments
RECORDINGS_philharmonia := jurihock/philharmonia
RECORDINGS_CS7990-Thesis-AirTrumpet-Python := trietngo/CS7990-Thesis-AirTrumpet-Python
LISTED := $(addprefix instruments/,orchestra philharmonia CS7990-Thesis-AirTrumpet-Python)
PLAYERS := $(addprefix sfzinstruments/,MTG.SoloSax EthanWiner.Soundfonts Ixox.Flute GTownChurchSamplingProject BengtNilsson.HeadroomPiano \
    GregSullivan.E-Pianos Discord-SFZ-GM-Bank) $(addprefix freepats/,e-guitar-FSBS-clean e-guitar-FSBS-direct e-guitar-FSBS-jazz \
    e-guitar-FSBS-dist1 e-guitar-FSBS-dist2 electric-bass-YR button-accordion-HN upright-piano-KW old-piano-FB spanish-classical-guitar)
INSTRUMENTS := sfzinstruments/SplendidGrandPiano sfzinstruments/karoryfer.weresax kmturley/karoryfer.black-and-green-guitars sfzinstruments/Discord-SFZ-GM-Bank
PYTEST_ARGS ?=
BENCH_ARGS ?=
RUN := runs/$(CONFIG)
VENV := .venv
BIN := $(VENV)/bin
CUDA_VENV := .venv-cuda
# The server's own tests but for those of numbers and of a millisecond: on the stand-in every code is 0, no note ends by itself, and one may be
# written before its deadline.
CUDA_TESTS := tests/cuda_check tests/integration/test_server.py -k "not finish_last and not one_seed and not lengthens_with and not deadline_that_passes"
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt $(PIP_ARGS)
TIMBREL := $(BIN)/timbrel

# Bytecode is kept, whatever the shell says: else each of the suite's hundreds of processes compiles every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo explore test lint format install bench pretrain acceptance cuda-check protos instruments players clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.demo-installed ## Install what playing needs and render twelve notes or more to demo/
	@$(TIMBREL) demo --out demo

explore: $(VENV)/.demo-installed ## Open the map of timbres in the browser, live on the model
	@$(TIMBREL) explore

# The continuous integration (TIMBREL_REQUIRE_ALL=1) runs the slow ones too.
test: lint ## Lint, type-check and test, on a small bundle
	$(BIN)/python -m pytest -m "not acceptance$(if $(TIMBREL_REQUIRE_ALL),, and not slow)" --numprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

lint: $(VENV)/.installed ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.installed ## Let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

install: $(VENV)/.installed ## Install everything for development into .venv, PyTorch included

bench: $(VENV)/.installed ## Measure the engine, the codec, the server and the whole (BENCH_ARGS=--quick: minutes instead of an hour)
	for name in decode profile codec serve gpu library explore reload host; do $(BIN)/python tests/benchmarks/$$name.py $(BENCH_ARGS) || exit; done

instruments: instruments/salamander ## Fetch the free instruments that training's `--config band` plays (1.3 GB, by npm and git)
	@for each in $(INSTRUMENTS); do test -d instruments/$${each#*/} || git clone --depth 1 https://github.com/$$each instruments/$${each#*/} || exit; done

# Alexander Holm's Salamander Grand Piano: npm has a package for each layer of velocity.
instruments/salamander:
	@command -v npm >/dev/null || { echo "timbrel: the piano is fetched by npm: apt-get install npm" >&2; exit 2; }
	rm -rf $@.part && mkdir -p $@.part
	cd $@.part && npm pack --silent $(foreach layer,1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16,@audio-samples/piano-velocity$(layer))
	cd $@.part && for each in *.tgz; do tar xzf $$each --strip-components=2 --wildcards 'package/audio/*.ogg' || exit; done
	$(or $(PYTHON),python3) training/examples/make_piano.py $@.part && rm $@.part/*.tgz && mv $@.part $@

players: $(LISTED) ## Fetch the recordings that `timbrel train hearing` learns by, never what is played (3 GB, by git)
	@for each in $(PLAYERS); do test -d instruments/$${each#*/} || git clone --quiet --depth 1 https://github.com/$$each instruments/$${each#*/} || exit; done

# The University of Iowa's, the Philharmonia Orchestra's, and a trumpet of the Music Technology Group, Barcelona.
$(LISTED):
	rm -rf $@.part && git clone --quiet --depth 1 https://github.com/$(RECORDINGS_$(notdir $@)) $@.part
	$(or $(PYTHON),python3) training/examples/list_recordings.py $@.part && mv $@.part $@

# Notes and tokens appear when they are complete; the trainings resume, and end at once where nothing is left to do.
pretrain: $(VENV)/.installed $(if $(SOURCES),,| instruments/salamander players) ## Notes to a bundle in one go, in runs/CONFIG/; a second call resumes the first
	@sed -n '1s/^# //p' training/timbrel_training/configs/$(CONFIG).toml
	[ -e $(RUN)/notes ] || $(TIMBREL) train notes --config $(CONFIG) $(addprefix --source ,$(SOURCES)) --out $(RUN)/notes
	$(TIMBREL) train codec --config $(CONFIG) --notes $(RUN)/notes --out $(RUN)/codec
	[ -e $(RUN)/tokens.bin ] || $(TIMBREL) train tokens --notes $(RUN)/notes --codec $(RUN)/codec --out $(RUN)/tokens.bin
	$(TIMBREL) train timbre --config $(CONFIG) --tokens $(RUN)/tokens.bin --notes $(RUN)/notes --out $(RUN)/timbre
	$(TIMBREL) train model --config $(CONFIG) --tokens $(RUN)/tokens.bin --timbre $(RUN)/timbre --out $(RUN)/model
	$(TIMBREL) train headers --config $(CONFIG) --notes $(RUN)/notes --tokens $(RUN)/tokens.bin --codec $(RUN)/codec --timbre $(RUN)/timbre --model $(RUN)/model --out $(RUN)/headers
	$(TIMBREL) export --model $(RUN)/headers/model --codec $(RUN)/headers/codec --timbre $(RUN)/timbre --tokens $(RUN)/tokens.bin --notes $(RUN)/notes --name timbrel-$(CONFIG) --out $(RUN)/bundle
	$(if $(SOURCES),,[ -e $(RUN)/others ] || $(TIMBREL) train notes --config hearing --out $(RUN)/others)
	$(if $(SOURCES),,[ -e $(RUN)/players ] || $(TIMBREL) train notes --config players --out $(RUN)/players)
	$(TIMBREL) train hearing --config $(CONFIG) --bundle $(RUN)/bundle --notes $(RUN)/notes $(if $(SOURCES),,--also $(RUN)/others --also $(RUN)/players) --timbre $(RUN)/timbre --out $(RUN)/hearing
	$(TIMBREL) export --bundle $(RUN)/bundle --timbre $(RUN)/hearing --out $(RUN)/bundle
	$(TIMBREL) train evaluate --bundle $(RUN)/bundle --notes $(RUN)/notes --count $(COUNT) --out $(RUN)/evaluation
	$(TIMBREL) train card --bundle $(RUN)/bundle --evaluation $(RUN)/evaluation

acceptance: $(VENV)/.installed ## The full-size checks, on the default bundle, and what `make test` leaves out
	$(BIN)/python -m pytest -m "acceptance or slow" $(PYTEST_ARGS)
	$(MAKE) cuda-check

# onnxruntime-gpu in an environment of its own, the rest from .venv; CUDA itself is a stand-in that g++ makes.
cuda-check: $(VENV)/.installed ## The CUDA path without a GPU: placement, captures, launches and copies counted
	@command -v g++ nm >/dev/null || { echo "cuda-check skipped: no g++ (apt-get install g++)"; exit 0; }; \
	$(MAKE) --no-print-directory $(CUDA_VENV)/.installed || { echo "cuda-check skipped: onnxruntime-gpu cannot be had"; exit 0; }; \
	STAND_IN_DEVICES=2 LD_LIBRARY_PATH="$(CURDIR)/$(CUDA_VENV)/stand_in" \
	    $(CUDA_VENV)/bin/python -m pytest -rP --show-capture stdout $(CUDA_TESTS) $(PYTEST_ARGS)

protos: $(VENV)/.installed ## Generate the gRPC stubs anew
	PYTHON="$(CURDIR)/$(BIN)/python" sh protos/generate.sh

clean: ## Remove .venv and every cache; what was rendered and trained stays
	rm -rf $(VENV) $(CUDA_VENV) build dist .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first interpreter that is new enough and can make a virtual environment.
$(VENV)/.created:
	@chosen=; lacks_venv=; \
	for candidate in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3); do \
	    "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    if "$$candidate" -c 'import venv, ensurepip' 2>/dev/null; then chosen=$$candidate; break; fi; \
	    lacks_venv=$${lacks_venv:-$$candidate}; \
	done; \
	if [ -z "$$chosen" ] && [ -n "$$lacks_venv" ]; then \
	    version=$$("$$lacks_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	    echo "timbrel: $$lacks_venv cannot make virtual environments. Run: apt-get install python$$version-venv" >&2; \
	    exit 2; \
	fi; \
	if [ -z "$$chosen" ]; then echo "timbrel: needs Python 3.11 or newer (Debian: apt-get install python3 python3-venv)" >&2; exit 2; fi; \
	"$$chosen" -m venv $(VENV) && touch $@

# ONNX Runtime and PyTorch have builds for a new Python some months after it: 3.14 is the newest that these tests have run on.
not-installed = { $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 15))' && \
    echo "timbrel: there may be no packages yet for a Python this new. Run: make clean, then the same with PYTHON=python3.14, or any from python3.11 on" >&2; \
    exit 2; }

# What `make demo` needs: no torch.
$(VENV)/.demo-installed: pyproject.toml constraints.txt | $(VENV)/.created
	@echo "installing timbrel into $(VENV) ..."
	@$(PIP) --editable '.[$(RUNTIME),server,demo,explore,midi]' || $(not-installed)
	@$(runtime-fix)
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.created
	@echo "installing timbrel and all that developing it needs into $(VENV) ..."
	@$(PIP) --editable '.[$(RUNTIME),server,demo,train,export,explore,midi,metrics,telemetry,scale,dev]' || $(not-installed)
	@$(runtime-fix)
	@touch $@ $(VENV)/.demo-installed

$(CUDA_VENV)/.installed: constraints.txt tests/cuda_check/stand_in.py tests/cuda_check/cuda_stand_in.cpp
	rm -rf $(CUDA_VENV)
	$(BIN)/python -m venv --without-pip $(CUDA_VENV)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	    > "$$($(CUDA_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/timbrel.pth"
	$(PIP:pip=pip --python $(CUDA_VENV)/bin/python) --no-deps onnxruntime-gpu
	$(PIP) --no-deps --target $(CUDA_VENV)/headers nvidia-cuda-runtime nvidia-cuda-crt
	$(CUDA_VENV)/bin/python tests/cuda_check/stand_in.py $(CUDA_VENV)/headers/nvidia/cu13/include $(CUDA_VENV)/stand_in
	touch $@

# swift-f0 of the demo extra brings onnxruntime, whose files overwrite those of onnxruntime-gpu.
ifeq ($(RUNTIME),gpu)
runtime-fix = $(BIN)/python -m pip uninstall --quiet --yes onnxruntime; $(PIP) --force-reinstall --no-deps onnxruntime-gpu
else
runtime-fix = :
endif
