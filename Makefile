# Gangline: `make run` shows it at work on a real control plane, `make test` proves it.
# Needs git, make and Python 3.11 or newer; everything else is fetched into .venv and the user's cache.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# where this is set, as in many images of containers, each process compiles all of our modules, which takes two seconds of CPU
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
STAMP := $(VENV)/.installed
#: what locks and lists the dependencies and collects the changelog
TOOLS := .venv-tools
#: what builds the site of `make docs`
DOCS := .venv-docs
#: Node.js, which builds the pages of the dashboard
NODE := .venv-node
UI := ui/dist/index.html
#: .venv once more, with the coverage-guided fuzzer
FUZZ := .venv-fuzz
#: the mutation tester of `make mutants`
MUTANTS := .venv-mutants
BIN := $(VENV)/bin
#: pytest workers; the tests that need the control plane share one per worker. Which tests go together: tests/sharing.py
WORKERS ?= 2
SHARED := -n $(WORKERS) --dist loadfile
PYTEST_ARGS ?=
#: of run and bench-hotswap: NODES=real, on real nodes (root)
NODES ?=
#: of fuzz: so many times the examples of `make test`
TIMES ?= 20
#: of fuzz and fuzz-coverage: for so many seconds each target (of fuzz-cost: all subjects together), or those in whose name a
#: pattern of TARGETS is found
FUZZ_SECONDS ?= 60
TARGETS ?=
#: of mutants: so many, and those in whose module's path ONLY is found (of fuzz-cost: subjects)
SAMPLE ?= 300
ONLY ?=
#: which of bench/admission.yaml's loads and sizes the benchmarks run
LOAD ?= baseline
SIZE ?= full
#: of bench-admission: GATE=1 fails if a figure is beyond the limits of bench/admission.yaml
GATE ?=
#: of bench-admission and bench-drain: a minimalkueue to run the same load against (docs/performance.md)
KUEUE ?=
#: of bench-soak and fuzz-cluster (and SEED of mutants and fuzz-cost); CALM=1: without faults
MINUTES ?= 30
SEED ?= 1
CALM ?=
#: of bench-gangs: how many gangs, and the options of bench.gangs that name binaries and CRDs of others
GANGS ?= 1000
PEERS ?=
#: of bench-pods: how many pods, and how many a group has
PODS ?= 5000
GROUP ?= 8
#: of bench-placement and bench-moves: openb's lists of pods and nodes; and how many seeds
OPENB_PODS ?=
OPENB_NODES ?=
SEEDS ?= 10
#: of bench-moves: every so-manieth node of the list, how full it is, for how many hours gangs arrive, and the minutes between them
PART ?= 16
FULL ?= 0.95
HOURS ?= 6
EVERY ?= 12
#: of bench-hotswap
TRIALS ?= 20
#: of Kubernetes: those on which the main path and the crash test run (docs/versions.md)
TESTED ?= 1.31 1.33 1.36
#: of test-kubernetes one of 1.31 to 1.36; of kubernetes a release such as 1.31.14; of changelog the version to be released
VERSION ?=
#: of test-pythons
PYTHONS ?= 3.11 3.12 3.13 3.14
#: of bench-curve: the largest number of workloads
TO ?= 50000
DEPTH ?= 100,1000,10000
SHAPES ?= 1,200
PACE ?= 200
#: of bench-time and bench-interference: the folder with the public traces that bench/windows.py names, and the days of each window; and how many copies
#: of it are played, all but the first shaken
TRACES ?=
DAYS ?= 3
COPIES ?= 4

#: of bench-month: which month, how many of its jobs, and to which seconds their submissions and ends are moved
MONTH ?= 2020-06
JOBS ?= all
GRAIN ?= 1

.PHONY: help run ui test test-kubernetes test-pythons kubernetes fuzz fuzz-coverage fuzz-cluster fuzz-cost mutants check venv bench bench-answers bench-engine bench-placement bench-reading bench-scrape bench-webhooks bench-admission bench-jobs bench-moves bench-pods bench-hotswap bench-idle bench-interference bench-soak bench-whole bench-curve bench-dashboard bench-frames bench-gangs bench-time bench-month bench-windows crds manifests reference pictures docs lock changelog sbom clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: venv ui ## a local cluster, two teams, thirty jobs, a live table (Ctrl-C ends it); DEMO=backfill: another story; NODES=real: installed on real nodes, with a real training
	@$(if $(NODES),$(BIN)/gangline dev cluster build --real)
	@$(BIN)/gangline run $(if $(NODES),--nodes real:3 --example quickstart --example pytorch-ddp --end) $(if $(DEMO),--example $(DEMO) --end)

ui: $(UI) ## the pages of the dashboard: ui/dist

$(UI): $(NODE)/.installed $(shell find ui -path ui/node_modules -prune -o -path ui/dist -prune -o -type f -print)
	@echo "· building the dashboard's pages" >&2
	@./scripts/node.sh npm run --silent build > $(NODE)/build.log 2>&1 || { cat $(NODE)/build.log >&2; exit 1; }
	@touch $@

test: check ui ## all checks, then all tests
	@$(BIN)/gangline dev cluster build --real --where-possible --helm $(TESTED:%=--version %)
	@$(BIN)/pytest $(SHARED) $(PYTEST_ARGS)

test-kubernetes: venv ## the tests that need a cluster, on another Kubernetes: VERSION=1.31
	@$(BIN)/gangline dev cluster build --version $(VERSION)
	@GANGLINE_KUBERNETES=$(VERSION) $(BIN)/pytest $(SHARED) -m cluster tests/api tests/cluster tests/control_io tests/kube tests/webhooks $(PYTEST_ARGS)

test-pythons: ## the tests that need no cluster, on every Python of PYTHONS="3.11 3.12 3.13 3.14" that is there
	@./scripts/pythons.sh $(PYTHONS)

kubernetes: venv ## pin a release of Kubernetes for local control planes: VERSION=1.31.14
	@$(BIN)/python scripts/kubernetes.py $(VERSION)

fuzz: venv ## the property tests with TIMES=20 times as many examples, new ones each time; then `make fuzz-coverage`
	@GANGLINE_EXAMPLES=$(TIMES) $(BIN)/pytest --timeout 3600 $(SHARED) $(shell grep -rlE '^from (hypothesis|tests.examples) import' tests --include='test_*.py') $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory fuzz-coverage

fuzz-coverage: $(FUZZ)/.installed ## coverage-guided: FUZZ_SECONDS=60 for every endpoint and parser, or for TARGETS="…"
	@$(FUZZ)/bin/python -m tests.fuzz.coverage --seconds $(FUZZ_SECONDS) $(value TARGETS)

fuzz-cluster: venv ## a tenant writes at random for MINUTES=30 (SEED=1) while another team's jobs are admitted as ever
	@$(BIN)/gangline dev cluster build
	@GANGLINE_TENANT_SECONDS=$$(($(MINUTES) * 60)) GANGLINE_TENANT_SEED=$(SEED) $(BIN)/pytest -s tests/cluster/test_tenant.py $(PYTEST_ARGS)

fuzz-cost: venv ## the objects that cost most CPU and memory for their size, sought for FUZZ_SECONDS=60 (SEED=1, ONLY=subject); JSON on stdout
	@$(BIN)/python -m tests.fuzz.cost --seconds $(FUZZ_SECONDS) --seed $(SEED) $(if $(ONLY),--only "$(ONLY)")

mutants: venv $(MUTANTS)/.installed ## small faults in the engine: do its tests catch them? SAMPLE=300 drawn with SEED=1; goes on where it was ended
	@$(MUTANTS)/bin/python scripts/mutants.py --sample $(SAMPLE) --seed $(SEED) --workers $(WORKERS) $(if $(ONLY),--only $(ONLY))

check: venv $(NODE)/.installed ## format, lint, types, import contracts, generated pages, links, the front end
	@$(BIN)/pyright > $(VENV)/pyright.log 2>&1 & types=$$!; trap 'kill $$types 2>/dev/null || true' EXIT; \
	echo "· ruff format"; $(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }; \
	echo "· ruff check"; $(BIN)/ruff check --quiet .; \
	echo "· lint-imports"; $(BIN)/lint-imports --no-logo; \
	echo "· reference"; $(BIN)/python -m scripts.reference --check; \
	echo "· manifests"; $(BIN)/python scripts/manifests.py --check; \
	echo "· links"; $(BIN)/python scripts/links.py; \
	echo "· ui"; ./scripts/node.sh npm run --silent check > $(VENV)/ui.log 2>&1 || { cat $(VENV)/ui.log; exit 1; }; \
	echo "· pyright"; wait $$types && code=0 || code=$$?; cat $(VENV)/pyright.log; exit $$code

venv: $(STAMP) ## .venv with everything installed (GANGLINE_PYTHON=… picks the interpreter)

$(STAMP): pyproject.toml requirements.lock
	@./scripts/venv.sh $(VENV)
	@touch $@

bench: bench-engine bench-reading bench-scrape ## every benchmark, at its smallest size
	@$(MAKE) --no-print-directory bench-admission bench-jobs SIZE=smoke

bench-engine: venv ## how fast the engine decides; JSON on stdout
	@$(BIN)/python -m tests.bench.engine

bench-answers: venv ## how fast the leader answers with 5,000 jobs waiting on 500 nodes, and what that costs its loop; JSON on stdout
	@$(BIN)/python -m tests.bench.answers

bench-dashboard: venv ## what 50 open dashboards cost the leader with 5,000 jobs on 500 nodes, beside one and none; JSON on stdout
	@$(BIN)/python -m tests.bench.dashboard

bench-frames: ui ## what a frame of the timeline costs the browser with 5,000 runs on 500 nodes, and an hour of changes its memory; JSON on stdout
	@./scripts/node.sh npm run --silent frames > $(NODE)/frames.log 2>&1 || { cat $(NODE)/frames.log >&2; exit 1; }
	@$(BIN)/python -m tests.bench.frames

bench-interference: venv ## what it is worth to know who slows whom on a shared card (TRACES=… SEED=1); JSON on stdout
	@$(BIN)/python -m tests.bench.interference $(if $(TRACES),--traces $(TRACES)) --seed $(SEED)

bench-placement: venv ## how much of a cluster's GPUs each policy gives away: OPENB_PODS=FILE OPENB_NODES=FILE (SEEDS=10); JSON on stdout
	@$(BIN)/python -m tests.bench.placement $(OPENB_PODS) $(OPENB_NODES) --seeds $(SEEDS)

bench-moves: venv ## what room made by moving is worth and costs: OPENB_PODS=FILE OPENB_NODES=FILE (PART=16 FULL=0.95 HOURS=6 EVERY=12 SEEDS=10); JSON on stdout
	@$(BIN)/python -m tests.bench.moves $(OPENB_PODS) $(OPENB_NODES) --part $(PART) --load $(FULL) --hours $(HOURS) --every $(EVERY) --seeds $(SEEDS)

bench-reading: venv ## what it costs to read a Workload by hand and with the model of its CRD; JSON on stdout
	@$(BIN)/python -m tests.bench.reading

bench-scrape: venv ## what a scrape of the metrics costs with 1,000 queues and 15,000 workloads; JSON on stdout
	@$(BIN)/python -m tests.bench.scrape

bench-webhooks: venv ## the webhooks under load: 200 reviews a second, a ramp, the fuzzers' corpus, writes to the API server; JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m tests.bench.webhooks

bench-admission: venv ## Kueue's benchmark load (LOAD=baseline|large|tas SIZE=full|half|tenth|smoke GATE=1); JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.admission --load $(LOAD) --size $(SIZE) $(if $(KUEUE),--kueue $(KUEUE)) $(if $(GATE),--gate)

bench-jobs: venv ## real Jobs through webhook, admission and pods (SIZE=…); KINDS=all instead: what a gang of each kind costs; JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.jobs --size $(SIZE) $(if $(KINDS),--kinds $(KINDS))

bench-pods: venv ## plain pods in groups (PODS=5000 GROUP=8), beside what the API server takes to create and ungate them; JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.pods --pods $(PODS) --group $(GROUP)

bench-hotswap: venv ## a node fails under a gang, TRIALS=20 times each way, beside Kubernetes' own path (NODES=real); JSON on stdout
	@$(BIN)/gangline dev cluster build $(if $(filter real,$(NODES)),--real) >&2
	@$(BIN)/python -m bench.hotswap$(if $(filter real,$(NODES)),_real --kubernetes $(TRIALS)) --trials $(TRIALS)

bench-idle: venv ## CPU of an operator at rest with everything waiting (SIZE=…); JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.idle --size $(SIZE)

bench-soak: venv ## a steady load while operator, API server and watches are disturbed (MINUTES=30 SEED=1 CALM=1); JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.soak --minutes $(MINUTES) --seed $(SEED) $(if $(CALM),--calm)

bench-whole: venv ## for how long GPUs are held by gangs of which a pod can't be bound (MINUTES=30 SEED=1 CALM=1); JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.whole --minutes $(MINUTES) --seed $(SEED) $(if $(CALM),--calm)

bench-curve: venv ## what a workload costs, from 100 in one queue to TO=50000 in 1,000 queues; JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.curve --to $(TO)

bench-drain: venv ## how fast a deep queue of many shapes is drained on 1,300 nodes (DEPTH=100,10000 SHAPES=1,200 PACE=200); JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.drain --depth $(DEPTH) --shapes $(SHAPES) --pace $(PACE) $(if $(KUEUE),--kueue $(KUEUE))

bench-gangs: venv ## how fast GANGS=1000 gangs of 8 plain pods get their nodes, beside others if PEERS="--volcano PATH …" names them; JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m bench.gangs --gangs $(GANGS) $(PEERS)

bench-scale: venv ## what the leader's memory and start cost by object, checked on 10,000 nodes with 50,000 jobs waiting; JSON on stdout
	@$(BIN)/python -m tests.bench.scale

bench-time: venv ## Gangline beside best effort and EASY on windows of public traces (TRACES=… DAYS=3 COPIES=4); JSON on stdout
	@$(BIN)/python -m bench.windows --traces $(TRACES) --days $(DAYS) --copies $(COPIES)

bench-month: venv ## a month of Venus played into a live cluster at speed: is its report right? TRACES=… (MONTH=2020-06 JOBS=all GRAIN=1); JSON on stdout
	@$(BIN)/gangline dev cluster build >&2
	@$(BIN)/python -m tests.bench.month --traces $(TRACES) --month $(MONTH) --grain $(GRAIN) $(if $(filter-out all,$(JOBS)),--jobs $(JOBS))

bench-windows: venv ## what a weekly maintenance costs on months of public traces, beside a drain and users' limits (TRACES=…); JSON on stdout
	@$(BIN)/python -m bench.reserved --traces $(TRACES)

crds: venv ## regenerate crds/ from the models
	@$(BIN)/gangline admin crds --out crds

manifests: venv ## regenerate charts/gangline/ and config/ from gangline.install
	@$(BIN)/python scripts/manifests.py

reference: venv ## regenerate docs/reference/ from the code
	@$(BIN)/python -m scripts.reference

pictures: venv ui ## the pictures in docs/pictures/, anew: a local cluster, the dashboard, Chromium
	@$(BIN)/gangline dev cluster build
	@$(BIN)/python -m scripts.pictures

docs: $(DOCS)/.installed ## a browsable site of docs/ with search: site/index.html (python3 -m http.server -d site serves it)
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet --clean
	@echo "site/index.html"

lock: venv $(TOOLS)/.installed ## requirements*.lock and the base of images anew from pyproject.toml, with hashes, keeping versions that fit (UPGRADE=1: the newest)
	@$(LOCK) pyproject.toml --group dev --output-file requirements.lock
	@$(LOCK) pyproject.toml --extra postgresql --output-file requirements-image.lock
	@$(BIN)/gangline dev image lock
	@$(LOCK) --group fuzz --output-file requirements-fuzz.lock
	@$(LOCK) --group mutants --output-file requirements-mutants.lock
	@$(LOCK) --group docs --output-file requirements-docs.lock
	@$(LOCK) --group node --output-file requirements-node.lock
	@$(LOCK) --group tools --output-file requirements-tools.lock

# for all platforms and every Python from the oldest on; what is installed must be what was locked
LOCK = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-annotate --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

changelog: $(TOOLS)/.installed ## CHANGELOG.md for VERSION=0.3.0 from changelog.d/; without VERSION what it would say
	@$(if $(VERSION),$(TOOLS)/bin/towncrier build --version $(VERSION) --yes,$(TOOLS)/bin/towncrier build --draft --version next)

sbom: $(TOOLS)/.installed ## dist/gangline.cdx.json: every package of requirements.lock with its hashes, as CycloneDX
	@mkdir -p dist
	@PYTHONWARNINGS=ignore $(TOOLS)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file dist/gangline.cdx.json requirements.lock
	@echo "dist/gangline.cdx.json"

$(FUZZ)/.installed: pyproject.toml requirements.lock requirements-fuzz.lock
	@./scripts/venv.sh $(FUZZ) fuzz
	@touch $@

$(MUTANTS)/.installed: requirements-mutants.lock
	@./scripts/venv.sh $(MUTANTS) mutants
	@touch $@

$(NODE)/.installed: requirements-node.lock ui/package-lock.json
	@./scripts/venv.sh $(NODE) node
	@echo "· installing what builds the dashboard's pages" >&2
	@./scripts/node.sh npm ci --no-audit --no-fund --loglevel=error > $(NODE)/install.log 2>&1 || { cat $(NODE)/install.log >&2; exit 1; }
	@touch $@

$(DOCS)/.installed: requirements-docs.lock
	@./scripts/venv.sh $(DOCS) docs
	@touch $@

$(TOOLS)/.installed: requirements-tools.lock
	@./scripts/venv.sh $(TOOLS) tools
	@touch $@

clean: ## remove .venv and caches (the control plane's build cache stays)
	rm -rf $(VENV) .venvs $(TOOLS) $(NODE) ui/node_modules ui/dist $(DOCS) $(FUZZ) $(MUTANTS) site .fuzz .mutants .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist
	find operator webhooks tests -name __pycache__ -type d -prune -exec rm -rf {} +
