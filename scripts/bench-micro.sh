#!/usr/bin/env bash
# The benchmarks of the packages, compared by benchstat with those of an earlier
# run that SAVE=1 has kept. Arguments go to go test: scripts/bench-micro.sh -bench=Pick -count=20
# PACKAGES (./...) are those to run. Those that change rules need root.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin

benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
saved=bin/bench-micro.txt
new=$(mktemp)
trap 'rm -f "$new"' EXIT
mkdir -p bin

# Packages without a benchmark are not built for it. benchstat wants six or more
# runs to tell a difference from noise; a later -count wins over the first.
mapfile -t packages < <(go list -f '{{.Dir}}' ${PACKAGES:-./...} | while read -r dir; do
  grep -qsE '^func Benchmark' "$dir"/*_test.go && echo "$dir" || true
done)
[ ${#packages[@]} -gt 0 ] || { echo "no package of ${PACKAGES:-./...} has benchmarks" >&2; exit 1; }
go test -run='^$' -bench=. -benchmem -count=6 "$@" "${packages[@]}" | tee "$new"

echo
if [ -n "${SAVE:-}" ]; then
  cp "$new" "$saved"
  go run "$benchstat" "$saved"
  echo "kept in $saved, for later runs to compare with"
elif [ -e "$saved" ]; then
  go run "$benchstat" "before=$saved" "after=$new"
else
  go run "$benchstat" "$new"
  echo "nothing to compare with: make bench-micro SAVE=1 keeps results for that"
fi
