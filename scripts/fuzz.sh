#!/usr/bin/env bash
# Runs every fuzz target of both modules for FUZZTIME (5s). With arguments, only
# the targets that they name: FUZZTIME=10m scripts/fuzz.sh FuzzDecode
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH=$PATH:/usr/sbin:/sbin
targets=$(git ls-files -z '*_test.go' | xargs -0 grep -hoEH '^func Fuzz[A-Za-z0-9_]*\(' | sed -E 's/^(.*)\/[^/]*:func (.*)\($/\1 \2/' | sort -u)
ran=0
while read -r package target; do
  [ -n "$target" ] || continue
  [ $# -eq 0 ] || [[ " $* " == *" $target "* ]] || continue
  echo "$package $target"
  # -parallel: one worker for each core is the default, and leaves none for the rest of the machine.
  (module=.; case $package in e2e*) module=e2e ;; esac
   cd $module && go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-5s}" "./${package#e2e}" </dev/null)
  ran=$((ran + 1))
done <<<"$targets"
echo "$ran fuzz targets ran"
[ "$ran" -gt 0 ] || [ $# -eq 0 ]
