# make build   the binary, bin/rowcached: static, reproducible from the same commit
# make demo    a private database, a mapped table, SQL writes that arrive over memcached; cleans up
# make test    everything: formatting, vet, staticcheck, unit tests with the race detector, and the
#              integration tests against every real server (provisioned first)

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: build demo test race torture servers clean

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

servers:
	scripts/servers.sh

clean:
	rm -rf bin
