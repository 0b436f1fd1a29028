SHELL := bash

GOLANGCI_LINT_VERSION := v2.15.0
# It is kept, by its version and that of the Go that built it.
GOLANGCI_LINT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/waybill/golangci-lint-$(GOLANGCI_LINT_VERSION)-$(shell go env GOVERSION)/golangci-lint

# Everything is built in one way, the images' programs and those that the tests
# build too, so that one build cache serves them all. What only a debugger reads takes compilers an eighth, and linkers a
# third of their time: go build makes a program that has it. What somebody has in GOFLAGS comes after it, and wins.
export CGO_ENABLED := 0
export GOFLAGS := $(strip -trimpath -gcflags=all=-dwarf=false -ldflags=-w $(shell go env GOFLAGS))

# Each program that builds and lints may have more garbage, up to a bound, unless the environment says how much: otherwise a
# compiler takes a fifth more of a processor, and golangci-lint twice as much.
SELDOM := GOGC=$${GOGC:-400} GOMEMLIMIT=$${GOMEMLIMIT:-4GiB}

# RACE=1 adds the race detector, TESTFLAGS more flags of go test. For example:
# make test RACE=1 TESTFLAGS='-run TestTakeover' PACKAGES=./orchestrator/...
RACE ?=
TESTFLAGS ?=
PACKAGES ?= ./...
# LONG=1 has the tests that take long, too, and draws more. RACE=1 and TESTFLAGS have all that anyway.
LONG ?=
# How many histories TestSimulation draws. 0 stands for 2500, and for 500 where tests that take long are left out.
SIMULATED ?= 0
# COMPUTING=only runs what only computes, such as TestSimulation, and nothing else; COMPUTING=none all but that.
COMPUTING ?=
# Where all that the tests say is kept.
TEST_LOG ?= bin/test.log

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/waybill
	$(SELDOM) go build -o bin/waybill ./cmd/waybill

# One that is not built here anyway, and one that is no Unix. Nobody runs them, so that they are made neither
# fast nor fit for a debugger: that takes the compiler a third less.
unused := -gcflags='all=-N -l -dwarf=false' -ldflags='-s -w' -o /dev/null

.PHONY: cross
cross: ## Build waybill for macOS and Windows too, and keep nothing
	$(SELDOM) GOOS=darwin GOARCH=arm64 go build $(unused) ./cmd/waybill
	$(SELDOM) GOOS=windows GOARCH=amd64 go build $(unused) ./cmd/waybill

.PHONY: dev
dev: build ## Run everything in one process, broker included
	@exec bin/waybill dev

# In which runs of go test, and why: test/run/parts.go. The seeds are fixed there.
.PHONY: test
test: ## Run the tests, with LONG=1 those that take long too; on Apache Kafka where Docker answers
	@go run ./test/run $(if $(filter 1,$(RACE)),-race) $(if $(filter 1,$(LONG)),-long) -histories $(SIMULATED) -computing '$(COMPUTING)' -log '$(TEST_LOG)' $(PACKAGES) -- $(TESTFLAGS)

$(GOLANGCI_LINT):
	GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check the code's form: gofmt, golangci-lint, which has go vet; and that mutants compile
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(SELDOM) $(GOLANGCI_LINT) run ./...
	$(SELDOM) go run ./test/mutants -compiles

.PHONY: screenshots
screenshots: ## Take the README's picture of the console anew, in Chromium
	@dir=$$(mktemp -d) && WAYBILL_SCREENSHOTS=$$dir go test -count=1 -run '^TestConsoleInABrowser$$' ./cmd/waybill && \
	  cp $$dir/error-1280-light.png docs/images/console-order.png; ended=$$?; rm -rf $$dir; exit $$ended

.PHONY: bench
bench: build ## Measure orders per second and latency
	@exec bin/waybill bench

# With MAX_LAG=2s what finds its lane so far behind is turned away, as over HTTP.
OVERLOAD ?= 3m
MAX_LAG ?= 0

.PHONY: overload
overload: build ## Submit twice as much as is carried, and see it come back
	@exec bin/waybill bench --overload $(OVERLOAD) --max-lag $(MAX_LAG)

# DURATION=2m for a short run; SEED=7 draws the faults of an earlier run again.
DURATION ?= 10m
SEED ?= 0
RATE ?= 15
BROKERS ?= 1
# WITHOUT='full|Kafka' leaves out the faults whose names match.
WITHOUT ?=

.PHONY: chaos
chaos: ## Break instances, clocks, network and Kafka under load
	go test -count=1 -v -timeout 0 -run '^TestChaos$$' ./test/chaos -args \
	  -duration $(DURATION) -seed $(SEED) -rate $(RATE) -brokers $(BROKERS) -without "$(WITHOUT)"

# What docs/performance.md is made of, on a machine that does nothing else: about two
# hours. PERFORMANCE='ladder|full' runs some parts, PERFORMANCE='^$' makes the page
# again. RUNS says how often each, in turn.
PERFORMANCE ?=
RUNS ?= 5

.PHONY: performance
performance: build ## Measure Waybill at every load; writes docs/performance.md
	go run ./test/performance -runs $(RUNS) -part '$(PERFORMANCE)' bin/waybill docs/performance

# What docs/reliability.md is made of. Each part leaves its figures in RESULTS,
# and the page is made of all that are there. PART=fuzz runs one, PART=none
# makes the page again. The numbers say how often, and so how long.
RESULTS ?= $(CURDIR)/docs/reliability
PART ?= simulation chaos-1 chaos-3 takeover upgrade kills dev disk fuzz damage torn flight sleepers outage backlog
HISTORIES ?= 1000000
FUZZED ?= 1000000
HANDOVERS ?= 10
UPGRADES ?= 20
KILLS ?= 300
DEV_KILLS ?= 100
FILLS ?= 20
SPOILED ?= 5000
IN_FLIGHT ?= 1000000
SLEEPERS ?= 1000000
OUTAGES ?= 30s,5m

.PHONY: reliability
reliability: ## Run all that breaks Waybill on purpose; writes docs/reliability.md
	@mkdir -p $(RESULTS); failed=; for part in $(PART); do \
	  $(MAKE) --no-print-directory reliability-$$part || failed="$$failed $$part"; done; \
	go run ./test/reliability/page $(RESULTS) >$(RESULTS).md || exit 1; \
	if [ -n "$$failed" ]; then echo "something is wrong with:$$failed" >&2; exit 1; fi

measured := WAYBILL_RESULTS=$(RESULTS) go test -count=1 -v -timeout 0

.PHONY: reliability-none reliability-simulation reliability-chaos-1 reliability-chaos-3 reliability-takeover reliability-upgrade
.PHONY: reliability-kills reliability-dev reliability-disk reliability-fuzz reliability-damage reliability-torn
.PHONY: reliability-flight reliability-sleepers reliability-outage reliability-backlog
reliability-none:
reliability-simulation:
	WAYBILL_HISTORIES=$(HISTORIES) $(measured) -run '^TestSimulation$$' ./orchestrator
reliability-chaos-1:
	WAYBILL_RESULTS=$(RESULTS) $(MAKE) chaos BROKERS=1
reliability-chaos-3:
	WAYBILL_RESULTS=$(RESULTS) $(MAKE) chaos BROKERS=3
reliability-takeover:
	$(measured) -run '^TestHandOver$$' ./test/process -args -handovers $(HANDOVERS) -handover-session 10s
reliability-upgrade:
	WAYBILL_UPGRADES=$(UPGRADES) $(measured) -run '^TestRollingUpgrade$$' ./test/process
reliability-kills:
	WAYBILL_KILLS=$(KILLS) $(measured) -run '^TestKill$$' ./internal/broker
reliability-dev:
	WAYBILL_KILLS=$(DEV_KILLS) $(measured) -run '^TestKillDevUnderLoad$$' ./test/process
reliability-disk:
	WAYBILL_FILLS=$(FILLS) $(measured) -run '^TestFullDisk$$' ./test/process
reliability-fuzz:
	WAYBILL_FUZZED=$(FUZZED) $(measured) -run '^TestFuzzedRecords$$' ./test/integration
reliability-damage:
	WAYBILL_SPOILED=$(SPOILED) $(measured) -run '^TestDamage$$' ./projections
reliability-torn:
	$(measured) -run '^TestTornJournal$$' ./orchestrator
reliability-flight:
	WAYBILL_IN_FLIGHT=$(IN_FLIGHT) $(measured) -run '^TestOrdersInFlight$$' ./test/process
	WAYBILL_WIDE=all $(measured) -run '^TestWideOrdersWithLargeInputs$$' ./test/integration
reliability-sleepers:
	WAYBILL_SLEEPERS=$(SLEEPERS) $(measured) -run '^TestOrdersThatSleep$$' ./test/process
reliability-outage:
	WAYBILL_OUTAGES=$(OUTAGES) $(measured) -run '^TestABrokerThatGoesAwayAndComesBack$$' ./test/integration
reliability-backlog:
	WAYBILL_BACKLOG=whole $(measured) -run '^TestBacklog$$' ./test/process

# Breaks one rule at a time, as test/mutants/list says, and runs the suites that
# must find it. ONLY=lane for those of one list, ONLY=lane/seal for fewer: what is
# known of the others stays in docs/reliability.md, with the commit at which each was
# tried.
ONLY ?=
MUTANTS ?= 1

.PHONY: mutants
mutants: ## Break rules on purpose, and see that tests fail
	@mkdir -p $(RESULTS); failed=; \
	$(if $(ONLY),,WAYBILL_MUTANTS=all go test -count=1 -run '^TestTheOracleNotices$$' ./orchestrator/decide || failed=1;) \
	WAYBILL_RESULTS=$(RESULTS) go run ./test/mutants -run '$(if $(ONLY),^$(ONLY))' -j $(MUTANTS) || failed=1; \
	go run ./test/reliability/page $(RESULTS) >$(RESULTS).md || failed=1; \
	test -z "$$failed"

# STORY=operator for one of them.
STORY ?= all

.PHONY: example
example: ## Run the order example while its services fail, and tell what happens
	@go run ./examples/order-fulfilment/stories $(STORY)

.PHONY: loan
loan: build ## Run the loan example, in which people decide, with its agents
	@go build -o bin/loan ./examples/loan/cmd/loan
	@exec bin/loan -waybill bin/waybill

.PHONY: trip
trip: build ## Run the trip example, whose steps other orders do, with its agents
	@go build -o bin/trip ./examples/trip/cmd/trip
	@exec bin/trip -waybill bin/waybill

.PHONY: subscription
subscription: build ## Run the subscription example, which a schedule renews until a signal ends it
	@go build -o bin/subscription ./examples/subscription/cmd/subscription
	@exec bin/subscription -waybill bin/waybill

.PHONY: payout
payout: build ## Run the payout example: 10,000 payments, of which some fail and are made anew
	@go build -o bin/payout ./examples/payout/cmd/payout
	@exec bin/payout -waybill bin/waybill

# What the images are made of is gathered in a directory of its own, so that
# Docker gets that and nothing else. The programs run on Linux whatever this
# machine is, and without its C library, as all is built here. CA_BUNDLE are the certificates that they
# trust; a scratch image has none.
IMAGE ?= waybill
EXAMPLE_IMAGE ?= waybill-example
CONTEXT ?= bin/image
CA_BUNDLE ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))

.PHONY: context
context: ## Gather in bin/image what the images are made of
	@if [ -z "$(CA_BUNDLE)" ]; then echo "no CA certificates found; install ca-certificates, or say CA_BUNDLE=file" >&2; exit 1; fi
	mkdir -p $(CONTEXT)/empty
	GOOS=linux go build -ldflags='-s -w' -o $(CONTEXT)/ ./cmd/waybill ./examples/order-fulfilment/cmd/fulfilment
	install -m 644 $(CA_BUNDLE) $(CONTEXT)/ca-certificates.crt
	install -m 644 deploy/Dockerfile $(CONTEXT)/Dockerfile

.PHONY: image
image: context ## Build the images waybill and waybill-example, see docs/deployment.md
	docker build --target waybill --tag $(IMAGE) \
	  --build-arg VERSION=$$(git describe --tags --always --dirty 2>/dev/null || echo unknown) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) $(CONTEXT)
	docker build --target example --tag $(EXAMPLE_IMAGE) $(CONTEXT)

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code
	$(GOLANGCI_LINT) fmt ./...

.PHONY: clean
clean: ## Remove what was built, and what go test cached
	rm -rf bin
	go clean -testcache
