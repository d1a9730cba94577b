SHELL := /bin/bash

# The linter is pinned: another version finds other things. Its name carries the version, so a new pin is a new file.
LINT_VERSION := v2.15.0
LINT         := .bin/golangci-lint-$(LINT_VERSION)

# The race detector needs a C compiler; `make test RACE=` goes without.
RACE    ?= -race
TIMEOUT ?= 15m

WITH_SERVICES := go run ./tests/services/run
WITHOUT       := env -u WATERMILL_INBOX_POSTGRES_DSN -u WATERMILL_INBOX_AMQP_URL

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the order example in memory: nothing to install
	go run ./examples/orders

.PHONY: demo-real
demo-real: ## Run the order example on a real Postgres and RabbitMQ
	$(WITH_SERVICES) -- go run ./examples/orders -real

.PHONY: test
test: ## Run every test on real servers; a skipped test fails the run
	$(WITH_SERVICES) -- go run ./tests/ci/gotest $(RACE) -shuffle=on -timeout $(TIMEOUT) ./...

.PHONY: test-unit
test-unit: ## Run the tests that need no server
	$(WITHOUT) go test -short ./...

.PHONY: bench
bench:
	@if [ -d tests/bench ]; then $(WITH_SERVICES) -- go run ./tests/bench; \
	else echo "make bench: there is no tests/bench in this version" >&2; exit 1; fi

.PHONY: lint
lint: $(LINT) ## Run the linters, the import rules among them
	$(LINT) run ./...

$(LINT):
	GOBIN=$(CURDIR)/.bin/install go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv .bin/install/golangci-lint $@

.PHONY: verify
verify: ## Check that modules are tidy, files formatted and generated code current
	go mod tidy -diff
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:" $$unformatted >&2; exit 1; fi
	go vet ./...
	@if grep -rqs --include='*.go' '^//go:generate' .; then \
	  before=$$(git status --porcelain; git diff); go generate ./... || exit 1; \
	  if [ "$$before" != "$$(git status --porcelain; git diff)" ]; then \
	    echo "generated files are not current: commit what go generate changed" >&2; git status --short >&2; exit 1; fi; fi

.PHONY: services
services: ## Start the servers and print the variables to export, until Ctrl-C
	@$(WITH_SERVICES)

.PHONY: fmt
fmt: $(LINT) ## Format every file
	$(LINT) fmt ./...

.PHONY: clean
clean: ## Delete what was built here
	rm -rf .bin coverage.*
