# Everything here is a go command that you could type yourself. It needs Go and make;
# Postgres is found on the machine or fetched (see internal/pgtemp). GNU make 3.81 and
# any POSIX shell will do.

GO ?= go
PKG ?= ./...
# Seconds per target of `make fuzz`, and what `make gobench` runs.
FUZZTIME ?= 10s
BENCH ?= .

# The oldest and the newest Postgres that the project promises to work with. Tests run
# on the oldest; those of the SQL itself run on both. A developer's machine makes do with
# what it has and says so; in CI both have to be there.
PG ?= 15
PG_ALSO ?= 18
ifeq ($(CI),)
PG_LENIENT := -lenient
endif

# Two packages at a time: each runs its tests in parallel as well, all on one server.
TEST_FLAGS ?=
TEST := $(GO) test -count=1 -p=2 -timeout=10m $(TEST_FLAGS)

# With OUTBOX_TEST_DATABASE_URL (a superuser's URL) in the environment tests use that
# server, and none is started.
ifeq ($(OUTBOX_TEST_DATABASE_URL),)
PGTEMP := bin/pgtemp $(PG_LENIENT) $(if $(PG),-version $(PG)) $(if $(PG_ALSO),-also $(PG_ALSO)) --
endif

TOOL := $(GO) tool -modfile=tools/go.mod
SCRIPTS := .ci/run

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## See it work: orders, crashes, faults, and the count at the provider (OUTPUT=json)
	@$(GO) build -o bin/outbox-worker ./cmd/outbox-worker 1>&2
	@exec bin/outbox-worker demo $(if $(OUTPUT),--output $(OUTPUT))

.PHONY: chaos
chaos: ## Break workers, network and database, and count (OUTPUT=json CHAOS='--seed 7')
	@$(GO) build -o bin/outbox-worker ./cmd/outbox-worker 1>&2
	@exec bin/outbox-worker chaos $(if $(OUTPUT),--output $(OUTPUT)) $(CHAOS)

.PHONY: test
test: bin/pgtemp ## All tests, on a private Postgres (PKG=./dispatch TEST_FLAGS='-run Late -v')
	@$(PGTEMP) $(TEST) $(PKG)

.PHONY: race
race: bin/pgtemp ## The same under the race detector; needs a C compiler
	@$(PGTEMP) $(TEST) -race $(PKG)

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZTIME (10s)
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			$(GO) test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) "$$(dirname $$file)"; \
		done; \
	done

.PHONY: bench
bench: ## What the guarantee costs, beside baselines in the same run (OUTPUT=json FIGURES='-only 1,2')
	@$(GO) build -o bin/outbox-worker ./cmd/outbox-worker 1>&2
	@$(GO) run ./internal/bench figures $(if $(PG),-pg $(PG)) $(if $(filter json,$(OUTPUT)),-json) $(FIGURES)

.PHONY: gobench
gobench: bin/pgtemp ## Go benchmarks, on a private Postgres (PKG=./outbox BENCH=Enqueue)
	@$(PGTEMP) $(GO) test -run='^$$' -bench='$(BENCH)' -benchmem -p=1 -timeout=30m $(TEST_FLAGS) $(PKG)

.PHONY: benchstat
benchstat: ## Compare what make gobench printed before and after (OLD=old.txt NEW=new.txt)
	@$(TOOL) benchstat $(OLD) $(NEW)

.PHONY: mutants
mutants: bin/pgtemp ## Take each guard away and see a test go red (MUTANTS='fence pins')
	@bin/pgtemp $(PG_LENIENT) $(if $(PG),-version $(PG)) -- $(GO) run ./internal/mutants $(MUTANTS)

.PHONY: lint
lint: ## vet, staticcheck, gofumpt, import arrows, modules, scripts
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	@files=$$($(TOOL) gofumpt -l .); if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi
	$(GO) test -count=1 ./internal/archtest
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	$(GO) mod verify
	@for script in $(SCRIPTS); do bash -n $$script || exit 1; done

.PHONY: fmt
fmt: ## Format all Go files
	$(TOOL) gofumpt -l -w .

.PHONY: build
build: ## bin/outbox-worker and bin/enqueue
	$(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: clean
clean: ## Remove what these targets leave in the tree
	rm -rf bin dist

# Go knows when this is up to date.
.PHONY: bin/pgtemp
bin/pgtemp:
	@$(GO) build -o $@ ./internal/pgtemp/cmd/pgtemp
