# make demo    set up what runs a bookie, then show three at work (INPUT=path: your own data, - for standard input)
# make test    set everything up, then the checks and what a change normally needs of the tests: all tiers but `slow`;
#              those with Apache's own clients and bookies need JDK 17 and Maven on PATH, and say that they were skipped
#              where these are not
# make unit    the tests that stay inside one process
# make test-slow
#              the tier `slow`, and the tests of the kernel's users once more with the interpreted kernel
# make test-all
#              both: all that exists
# make check   the checks alone: style, types, import contracts
# make kernel  compile what has changed of the kernel: the modules that have a .pxd beside them
# make bench-peers
#              bkbox beside Apache's bookie, in turn: the tables of docs/performance.md (JDK 17, Maven; ROUNDS=5,
#              ARGS='--only "window 16" --quick --dir /data'; '--only "constant rate"', '--only foreign'; with
#              '--more' rounds are added to those that the tables have of this machine)
# make bench-growth
#              the bookie with a hundred times as much of everything: the last table there
# make bench-frontends
#              1, 2, 4 and 8 front-ends over 1, 2 and 4 disks, beside Apache's bookie where JDK 17 and Maven are: for a
#              large host (ARGS='--dir /data1 --dir /data2 --generators 16 --rounds 3')
# make bench-repair
#              a lost disk and a lost bookie made good, beside Apache's: a table of docs/performance.md (JDK 17, Maven;
#              ARGS='--ledgers 1000 --rounds 1 --no-report')
# make bench-spark
#              ledgers read by Spark beside Parquet and Apache's client, and audits of 10 x and 100 x the ledgers
#              (ROUNDS=5, ARGS='--mib 256 --ledgers 20000 --no-reads --dir /data')
# make soak    simulated clusters through faults of all kinds, for 20 minutes (MINUTES=480): the table of
#              docs/verification.md
# make site    the documentation as a site with search, in build/site; fails on a broken link or anchor
# make release the files of a release, in dist/: wheels, source distribution, Debian packages, checksums (docs/release.md;
#              PARTS=wheels for those of this machine alone)
# make clean   remove what these made
#
# All of it lives in .venv, in stages, each by the lock of its name in requirements/: what runs a bookie, what develops
# it, Spark, the documentation, releases. It is made with Python 3.11 to 3.14 from PATH, or with uv where there is none.

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/run
KERNEL := $(VENV)/kernel
DEV := $(VENV)/dev
SPARK := $(VENV)/spark
STAMP := $(KERNEL) $(DEV) $(SPARK)

# What a shell has set for another Python would be found before what is installed here; and without bytecode every one
# of the thousands of processes that tests start compiles bkbox anew.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# As pip does: the host's certificates, not its own.
export UV_SYSTEM_CERTS := 1

.PHONY: demo demo-interpreted unit test test-slow test-all check kernel release bench-peers bench-growth bench-frontends bench-spark bench-repair site soak clean
.DEFAULT_GOAL := test
.DELETE_ON_ERROR:

show = $(BIN)/bkbox demo $${INPUT:+--input "$$INPUT"}

# A kernel that is not compiled yet compiles beside the demo, in the time that it leaves. The demo's processes take none
# of the modules that come in place meanwhile.
demo: $(RUN)
	@if $(MAKE) --silent --question $(KERNEL); then $(show); \
	else $(MAKE) --silent --jobs=2 IDLE="nice -n 19" demo-interpreted $(KERNEL); fi

demo-interpreted:
	@BKBOX_KERNEL=interpreted $(show)

# Tests wait more than they compute: WORKERS of them run beside one another. A busy machine may keep a process waiting
# past any patience. So what failed is run again, by itself; what is wrong fails again, and both runs are printed, with
# the tests that needed the second one.
WORKERS ?= 4
pytest = $(BIN)/python -m pytest -q -n $(WORKERS) $(1) || \
    $(BIN)/python -m pytest --last-failed --last-failed-no-failures none --exitfirst $(1)

# They compute, and each process looks through all of the tests first.
unit: WORKERS := logical
unit: $(KERNEL) $(DEV)
	$(call pytest,-m unit)

test: check
	$(call pytest,-m "not slow")

test-slow: $(STAMP)
	$(call pytest,-m slow)
	export BKBOX_KERNEL=interpreted; $(call pytest,tests/native tests/bookie tests/worker tests/frontend tests/ipc)

test-all: test test-slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

kernel: $(KERNEL)

bench-peers: $(STAMP)
	$(BIN)/python -m tests.bench.peers --rounds $${ROUNDS:-5} $(ARGS)

bench-growth: $(STAMP)
	$(BIN)/python -m tests.bench.growth --rounds $${ROUNDS:-5} $(ARGS)

bench-frontends: $(STAMP)
	$(BIN)/python -m tests.bench.frontends $(ARGS)

bench-repair: $(STAMP)
	$(BIN)/python -m tests.bench.repair $(ARGS)

bench-spark: $(STAMP)
	$(BIN)/python -m tests.bench.pipeline --rounds $${ROUNDS:-5} $(ARGS)

soak: $(STAMP)
	$(BIN)/bkbox sim --jobs 2 --minutes $${MINUTES:-20}

# Its packages come with the first run: make test needs none of them.
site: $(VENV)/installed-site
	rm -rf build/site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

$(VENV)/installed-site: $(STAMP) requirements/docs.lock
	@echo "== Installing what makes the documentation, by requirements/docs.lock =="
	@$(LOCKED) requirements/docs.lock
	@touch $@

release: $(VENV)/installed-release
	@$(BIN)/python -m release $(PARTS)

$(VENV)/installed-release: $(STAMP) requirements/release.lock
	@echo "== Installing what makes releases, by requirements/release.lock =="
	@$(LOCKED) requirements/release.lock
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache
	find bkbox proof -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is not in the lock, or has another hash, is not installed.
INSTALL = $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --no-compile)
LOCKED = $(INSTALL) --require-hashes --requirement

$(RUN): pyproject.toml setup.py requirements/run.lock
	@echo "== Installing what runs bkbox in $(VENV), by requirements/run.lock =="
	@$(make_venv)
	@$(LOCKED) requirements/run.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# Where it cannot be compiled, the next target tries again: there may be a C compiler by then.
COMPILED := $(shell find bkbox proof -name '*.pxd')
$(KERNEL): $(RUN) bkbox/native/crc32c.h $(COMPILED) $(wildcard $(COMPILED:.pxd=.py))
	@echo "== Compiling the kernel: $(words $(COMPILED)) modules, for the speed of all that follows =="
	@$(IDLE) $(BIN)/python setup.py --quiet build_ext --inplace
	@if $(BIN)/python -c "from bkbox.native.compiled import COMPILED; exit(not COMPILED)"; then touch $@; fi

$(DEV): $(RUN) requirements/dev.lock
	@echo "== Installing what develops bkbox, by requirements/dev.lock =="
	@$(LOCKED) requirements/dev.lock
	@touch $@

$(SPARK): $(DEV) requirements/spark.lock
	@echo "== Installing Spark, by requirements/spark.lock: 450 MB =="
	@$(LOCKED) requirements/spark.lock
	@touch $@

# Keeps a .venv that works; else makes one, of the Python that the host calls python3, for which it has headers and
# updates; else of the newest. pip and uv want a home folder that they can write to.
define make_venv
set -eu; \
supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'; \
works() { "$$1" -c "$$supported" 2>/dev/null; }; \
if works $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1; then exit 0; fi; \
rm -rf $(VENV); \
uv=$$(command -v uv || true); \
if [ ! -w "$${HOME:-/nonexistent}" ]; then HOME="$$PWD/build/home"; mkdir -p "$$HOME"; export HOME; fi; \
python=; \
IFS=:; \
for name in python3 python3.14 python3.13 python3.12 python3.11; do \
    for folder in $$PATH; do \
        if [ -z "$$python" ] && [ -x "$$folder/$$name" ] && works "$$folder/$$name"; then \
            python="$$folder/$$name"; \
        fi; \
    done; \
done; \
unset IFS; \
if [ -n "$$uv" ]; then \
    "$$uv" venv --quiet --seed --python "$${python:-3.13}" $(VENV); \
elif [ -n "$$python" ] && "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
    "$$python" -m venv $(VENV); \
elif [ -n "$$python" ] && "$$python" -m virtualenv --version >/dev/null 2>&1; then \
    "$$python" -m virtualenv --quiet $(VENV); \
elif [ -n "$$python" ]; then \
    echo "error: $$python cannot make virtual environments: install its venv package (Debian: apt install python3-venv) or uv" >&2; \
    exit 1; \
else \
    echo "error: no Python 3.11 to 3.14 on PATH: install one of them (Debian: apt install python3 python3-venv) or uv" >&2; \
    exit 1; \
fi
endef
