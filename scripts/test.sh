#!/usr/bin/env bash
# Everything that make test runs once scripts/deps.sh and scripts/controlplane.sh
# have passed.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH=$PATH:/usr/sbin:/sbin

step() { printf '\n== %s\n' "$*"; }

step "go vet: Linux, Windows, macOS, and the portable path on Linux"
go vet ./...
for os in windows darwin; do
  # Without cgo: there is no C compiler for these here, nor need of one.
  CGO_ENABLED=0 GOOS=$os go build ./...
  CGO_ENABLED=0 GOOS=$os go vet ./...
done
go vet -tags=portable ./...
(cd e2e && go vet ./...)

step "go test -race"
go test -race -timeout=25m -cover -coverprofile=coverage.out ./...

# The path of Windows and macOS, on this machine: packages with a file that is
# built for it alone.
mapfile -t portable < <(git ls-files -z '*.go' | xargs -0 grep -lE '^//go:build .*\bportable\b' | xargs -rn1 dirname | sort -u | sed 's,^,./,')
if [ ${#portable[@]} -gt 0 ]; then
  step "go test -race -tags=portable"
  go test -race -timeout=25m -tags=portable "${portable[@]}"
fi

step "end to end"
scripts/e2e.sh

step "fuzzing, ${FUZZTIME:-5s} each"
scripts/fuzz.sh

step "coverage of the packages' own tests"
go tool cover -func=coverage.out | tail -n 1
