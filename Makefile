# make build   the binary, bin/rowcached: static, reproducible from the same commit
# make demo    a private database, a mapped table, SQL writes that arrive over memcached; cleans up
# make test    everything: formatting, vet, staticcheck, unit tests with the race detector, and the
#              integration tests against every real server (provisioned first)

# make hostile the daemon under attack for ten minutes, five for each engine, judged by what
#              well-behaved clients see of it and by what is left of it
# make fuzz    half an hour of fuzzing of what reads the network

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: build demo test race torture hostile fuzz servers clean

build:
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/rowcached ./cmd/rowcached

demo:
	scripts/servers.sh --only demo
	$(MAKE) --no-print-directory build
	./bin/rowcached demo

test: servers
	@scripts/test.sh

# make test with the daemon itself under the race detector
race: servers
	@ROWCACHED_RACE=1 scripts/test.sh

# random transactions and disturbances, every key compared: make torture TIME=30m KINDS=mysql97 SEED=42
TIME ?= 10m
KINDS ?= mysql97 mariadb1011
SEED ?= 0
torture: servers
	go test ./integration/torture -v -timeout 0 -torture.time $(TIME) -torture.kinds "$(KINDS)" -torture.seed $(SEED)

hostile:
	go test ./integration/hostile -count=1 -v -timeout 30m -hostile 5m -hostile.ratio 2

# The memory tier's own goroutine makes coverage jitter: without the limit most of the time would go into shrinking inputs.
fuzz:
	for f in FuzzText FuzzMeta FuzzBinary; do go test ./server/protocol -run '^$$' -fuzz "^$$f$$" -fuzztime 5m -fuzzminimizetime 1x || exit 1; done
	go test ./server -run '^$$' -fuzz '^FuzzConnection$$' -fuzztime 15m -fuzzminimizetime 1x -timeout 30m

servers:
	scripts/servers.sh

clean:
	rm -rf bin
