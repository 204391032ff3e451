# README.md has the two commands that matter; these are for everyday work.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZINPUTS  ?= 50000x

.PHONY: all build test race bench lint fuzz docs policy-table ci

all: build lint test

build:
	go build -o bin/sim ./cmd/sim

test:
	go test ./...

race:
	go test -race ./...

bench:
	go test -run '^$$' -bench . -benchmem ./...

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

# Each fuzz target in turn, for FUZZINPUTS inputs.
fuzz:
	.ci/fuzz $(FUZZINPUTS)

# Figures of docs/ that the simulator makes itself.
docs:
	go generate ./...

# The table of docs/policies.md: every policy, 100 seeds a cell; minutes.
policy-table:
	go run ./docs/internal/policydocs table docs/policies.md

ci:
	.ci/run
