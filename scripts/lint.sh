#!/usr/bin/env bash
# golangci-lint on both modules, also as Windows and the portable path build
# them, and what gofmt and go mod tidy would change.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v2.15.0
lint=bin/golangci-lint-$version
if [ ! -x "$lint" ]; then
  mkdir -p bin
  found=$(command -v golangci-lint || true)
  if [ -n "$found" ] && [[ "$("$found" version)" == *" version ${version#v} "* ]]; then
    ln -sf "$found" "$lint"
  else
    echo "building golangci-lint $version, once (some minutes)"
    GOBIN=$PWD/bin/build go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
    mv bin/build/golangci-lint "$lint"
    rmdir bin/build
  fi
fi
lint=$PWD/$lint

failed=0
try() {
  printf '== %s\n' "$*"
  "$@" || failed=1
}
unformatted() { git ls-files -z '*.go' | xargs -0 gofmt -l | grep . && return 1 || return 0; }
# Every direct requirement has its line in docs/dependencies.md.
undocumented() {
  local module
  for module in $(sed -nE '/\/\/ indirect/d; s/^(\trequire )?\t?([a-z][^ ]*\.[^ ]*\/[^ ]*) v.*/\2/p' go.mod); do
    grep -qF "| $module |" docs/dependencies.md || { echo "$module is not in docs/dependencies.md"; return 1; }
  done
}

try unformatted
try undocumented
try go mod tidy -diff
try "$lint" run ./...
# What the pure packages have for Linux alone is unused elsewhere.
try env CGO_ENABLED=0 GOOS=windows "$lint" run --disable=unused ./...
try "$lint" run --disable=unused --build-tags=portable ./...
cd e2e
try go mod tidy -diff
try "$lint" run --config=../.golangci.yml ./...
exit $failed
