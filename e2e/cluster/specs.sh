#!/usr/bin/env bash
# specs.sh NAME FOCUS [SKIP]: runs those of Kubernetes' own end-to-end specs whose
# text matches the regular expression FOCUS and not SKIP, PROCESSES (4) at a time.
# specs.sh NAME: runs those again that failed then, one after the other: a machine
# that is short of time makes some fail that count on it. What became of them all is
# in $work/report/NAME, and the second time in $work/report/NAME/again. It fails where
# one of them does.
set -euo pipefail
. "$(dirname "$0")/env.sh"
report=$work/report/$1
if [ $# = 1 ]; then
  # "  [FAIL] [sig-network] Services [It] should … [sig-network, Conformance]", as a
  # regular expression of all but the mark and the labels: others may have its end too.
  focus=$(sed -nE 's/^  \[FAIL\] (.*) \[It\] (.*) \[sig-network[],].*/\1 \2/p' "$report/log" | sort -u | sed 's/[^a-zA-Z0-9 ]/./g' | paste -sd'|')
  [ -n "$focus" ] || exit 0
  set -- "$1" "($focus)" '^$'
  report=$report/again
  PROCESSES=1
fi
rm -rf "$report"
mkdir -p "$report"
nodes=$(ls "$work"/nodes/*.pid | wc -l)
code=0
"$here/in.sh" 1 env KUBECONFIG="$KUBECONFIG" "$kept/bin/ginkgo" --procs="${PROCESSES:-4}" --no-color -v --timeout=1h \
  --focus="$2" --skip="${3:-^$}" "$kept/bin/e2e.test" -- \
  --provider=skeleton --kubeconfig="$KUBECONFIG" --kubectl-path="$kept/bin/kubectl" --num-nodes="$nodes" \
  --report-dir="$report" --disable-log-dump --node-schedulable-timeout=1m </dev/null >"$report/log" 2>&1 || code=$?
grep -E '^Ran |^  \[FAIL\]' "$report/log" | sort -u || true
exit $code
