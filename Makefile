# make demo    set everything up, then show three bookies at work (INPUT=path: your own data, - for standard input)
# make test    set everything up, then all checks and tests; those with Apache's own clients and bookies need JDK 17
#              and Maven on PATH, and say that they were skipped where these are not
# make check   the checks alone: style, types, import contracts
# make kernel  compile the kernel again after a change of a module that has a .pxd beside it
# make bench-peers
#              bkbox beside Apache's bookie, in turn: the tables of docs/performance.md (JDK 17, Maven; ROUNDS=5,
#              ARGS='--only "window 16" --quick --dir /data')
# make bench-growth
#              the bookie with a hundred times as much of everything: the last table there
# make bench-repair
#              a lost disk and a lost bookie made good, beside Apache's: a table of docs/performance.md (JDK 17, Maven;
#              ARGS='--ledgers 1000 --no-report')
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
# All of it lives in .venv, made with Python 3.11 or 3.12 from PATH, or with uv where there is neither.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

# What a shell has set for another Python would be found before what is installed here.
unexport PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: demo test check kernel release bench-peers bench-growth bench-spark bench-repair site soak clean
.DEFAULT_GOAL := test
.DELETE_ON_ERROR:

demo: $(STAMP)
	@$(BIN)/bkbox demo $${INPUT:+--input "$$INPUT"}

# Thousands of tests start processes of their own beside one another, and a busy machine may keep one of those waiting
# past any patience. So what failed is run again, by itself; what is wrong fails again, and both runs are printed.
pytest = $(BIN)/python -m pytest -n 4 --dist worksteal $(1) || \
    $(BIN)/python -m pytest --last-failed --last-failed-no-failures none --exitfirst $(1)

test: check
	$(call pytest,)
	export BKBOX_KERNEL=interpreted; $(call pytest,tests/native tests/bookie tests/worker tests/frontend tests/ipc)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

kernel: $(STAMP)
	$(BIN)/python setup.py --quiet build_ext --inplace

bench-peers: $(STAMP)
	$(BIN)/python -m tests.bench.peers --rounds $${ROUNDS:-5} $(ARGS)

bench-growth: $(STAMP)
	$(BIN)/python -m tests.bench.growth --rounds $${ROUNDS:-5} $(ARGS)

bench-repair: $(STAMP)
	$(BIN)/python -m tests.bench.repair $(ARGS)

bench-spark: $(STAMP)
	PYTHONPATH=$(CURDIR)/spark:$(CURDIR) $(BIN)/python -m tests.bench.pipeline --rounds $${ROUNDS:-5} $(ARGS)

soak: $(STAMP)
	$(BIN)/bkbox sim --jobs 2 --minutes $${MINUTES:-20}

# Its packages come with the first run: make test needs none of them.
site: $(VENV)/installed-site
	rm -rf build/site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

$(VENV)/installed-site: $(STAMP) requirements-docs.lock
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-docs.lock
	@touch $@

release: $(VENV)/installed-release
	@$(BIN)/python -m release $(PARTS)

$(VENV)/installed-release: $(STAMP) requirements-release.lock
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-release.lock
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache
	find bkbox proof -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is not in the lock, or has another hash, is not installed.
$(STAMP): pyproject.toml setup.py requirements.lock Makefile
	@$(make_venv)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Keeps a .venv that works; else makes one. pip and uv want a home folder that they can write to.
define make_venv
set -eu; \
supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))'; \
works() { "$$1" -c "$$supported" 2>/dev/null; }; \
if works $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1; then exit 0; fi; \
rm -rf $(VENV); \
uv=$$(command -v uv || true); \
if [ ! -w "$${HOME:-/nonexistent}" ]; then HOME="$$PWD/build/home"; mkdir -p "$$HOME"; export HOME; fi; \
python=; \
IFS=:; \
for name in python3.12 python3.11 python3; do \
    for folder in $$PATH; do \
        if [ -z "$$python" ] && [ -x "$$folder/$$name" ] && works "$$folder/$$name"; then \
            python="$$folder/$$name"; \
        fi; \
    done; \
done; \
unset IFS; \
if [ -n "$$python" ] && "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
    "$$python" -m venv $(VENV); \
elif [ -n "$$uv" ]; then \
    "$$uv" venv --quiet --seed --python "$${python:-3.12}" $(VENV); \
elif [ -n "$$python" ] && "$$python" -m virtualenv --version >/dev/null 2>&1; then \
    "$$python" -m virtualenv --quiet $(VENV); \
elif [ -n "$$python" ]; then \
    echo "error: $$python cannot make virtual environments: install its venv package (Debian: apt install python3-venv) or uv" >&2; \
    exit 1; \
else \
    echo "error: no Python 3.11 or 3.12 on PATH: install one of them (Debian: apt install python3 python3-venv) or uv" >&2; \
    exit 1; \
fi
endef
