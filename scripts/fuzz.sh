#!/usr/bin/env bash
# Runs every fuzz target of both modules for FUZZTIME (5s). With arguments, only
# the targets that they name: FUZZTIME=10m scripts/fuzz.sh FuzzDecode
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH=$PATH:/usr/sbin:/sbin
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# go test now and then takes the end of fuzztime in the middle of an input for a
# failure ("context deadline exceeded"). It has found nothing then: what it finds
# it writes to a file, and says so.
fuzz() {
  go test "$@" </dev/null 2>&1 | tee "$log" && return
  grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic:|DATA RACE' "$log"
}

targets=$(git ls-files -z '*_test.go' | xargs -0 grep -hoEH '^func Fuzz[A-Za-z0-9_]*\(' | sed -E 's/^(.*)\/[^/]*:func (.*)\($/\1 \2/' | sort -u)
ran=0
while read -r package target; do
  [ -n "$target" ] || continue
  [ $# -eq 0 ] || [[ " $* " == *" $target "* ]] || continue
  echo "$package $target"
  # -parallel: one worker for each core is the default, and leaves none for the rest of the machine.
  (module=.; case $package in e2e*) module=e2e ;; esac
   cd $module && fuzz -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-5s}" "./${package#e2e}")
  ran=$((ran + 1))
done <<<"$targets"
echo "$ran fuzz targets ran"
[ "$ran" -gt 0 ] || [ $# -eq 0 ]
