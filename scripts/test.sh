#!/usr/bin/env bash
# Runs every check and test of the project; `make test` provisions the servers first.
# The last line is the test runner's own count.
set -euo pipefail
cd "$(dirname "$0")/.."

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
gotestsum=gotest.tools/gotestsum@v1.13.0

step() { printf '== %s\n' "$*"; }

step gofmt
unformatted="$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 -r gofmt -l)"
if [ -n "$unformatted" ]; then
	printf 'not formatted (run gofmt -w):\n%s\n' "$unformatted" >&2
	exit 1
fi

step go mod tidy
go mod tidy -diff

step go vet
go vet ./...

step staticcheck
go run "$staticcheck" ./...

# Unit tests run with the race detector. The integration tests drive processes: with ROWCACHED_RACE=1 (make race) it is
# the daemon that they run which is built with it, and is several times slower.
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
step build the daemon
if [ "${ROWCACHED_RACE:-0}" = 1 ]; then
	go build -race -o "$work/rowcached" ./cmd/rowcached
else
	go build -o "$work/rowcached" ./cmd/rowcached
fi

step tests
export ROWCACHED_REQUIRE_SERVERS=1 ROWCACHED_BIN="$work/rowcached"
# A test that fails is run once more, and the summary names it: some wait for a bounded time, which a machine that is busy
# with other things may exceed. What fails twice fails.
run() { # packages, arguments of go test
	local packages="$1"
	shift
	go run "$gotestsum" --format pkgname-and-test-fails --rerun-fails=1 --rerun-fails-max-failures=20 --packages "$packages" -- "$@"
}
code=0
run "$(go list ./... | grep -v '/integration\(/\|$\)' | tr '\n' ' ')" -race -timeout 20m || code=1
step integration tests
run ./integration/... -timeout 30m || code=1
exit $code
