# README.md has the two commands that matter; these are for everyday work.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZINPUTS  ?= 50000x

.PHONY: all build test race bench pgo lint fuzz docs policy-table ci

all: build lint test

build:
	go build -o bin/sim ./cmd/sim

test:
	go test ./...

race:
	go test -race ./...

# As the command is built: with the profile in cmd/sim.
bench:
	go test -run '^$$' -bench . -benchmem -pgo cmd/sim/default.pgo ./...

# What the compiler is told of the hot paths (docs/decisions.md). Anew after a
# change of the loop, the engine or the router that moves much; minutes.
pgo:
	mkdir -p bin
	go test -trimpath -pgo off -run '^$$' -bench 'Hot90|Wave$$|Replicas' -benchtime 5s -cpuprofile bin/cpu.prof -o bin/sim.test ./sim
	go tool pprof -proto bin/sim.test bin/cpu.prof > cmd/sim/default.pgo

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
