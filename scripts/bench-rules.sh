#!/usr/bin/env bash
# What rules cost, by the number of Services, as a table: the benchmarks of
# iptables/rules_bench_test.go, whose own lines show how far they are. Arguments
# go to go test: scripts/bench-rules.sh -bench=RulesOneMore. With the output of
# an earlier run on standard input and the argument "-", it is only read.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin

measure() {
  if [ "${1:-}" = - ]; then cat; else go test -run='^$' -bench='^BenchmarkRules' -timeout=60m "$@" ./iptables; fi
}

measure "$@" | tee /dev/stderr | awk '
function time(ns) {
  if (ns == "") return "–"
  if (ns >= 1e10) return sprintf("%.0f s", ns / 1e9)
  if (ns >= 1e9) return sprintf("%.1f s", ns / 1e9)
  if (ns >= 1e6) return sprintf("%.0f ms", ns / 1e6)
  return sprintf("%.0f µs", ns / 1e3)
}
# BenchmarkRulesApply/nftables/1000-2  18  66174151 ns/op
# BenchmarkRulesConnect/nftables-2  30  128007 ns@10  122220 ns@1000  126609 ns@10000  0.99 x
/^BenchmarkRules/ {
  sub(/-[0-9]+$/, "", $1)
  split($1, name, "/")
  what = substr(name[1], length("BenchmarkRules") + 1)
  way = name[2]
  if (!(way in known)) { known[way]; ways[++count] = way }
  for (i = 3; i < NF; i += 2) {
    if ($(i + 1) == "ns/op" && name[3] && !((what, way, name[3]) in took)) took[what, way, name[3]] = $i
    if ($(i + 1) == "s-estimated/op") took[what, way, name[3]] = $i * 1e9
    if ($(i + 1) ~ /^ns@/) took[what, way, substr($(i + 1), 4)] = $i
  }
}
/^(FAIL|--- FAIL|panic)/ { failed = 1 }
END {
  if (failed || !count) exit 1
  split("10 1000 10000", numbers, " ")
  print "\n| rules | Services | all applied | one more | a connection | a first packet |"
  print "|---|--:|--:|--:|--:|--:|"
  for (i = 1; i <= count; i++) for (j = 1; j <= 3; j++) {
    way = ways[i]; n = numbers[j]
    label = way
    if (sub(/^calls-/, "", label)) label = "one call of iptables-" label " for each rule"
    printf "| %s | %s | %s | %s | %s | %s |\n", label, n == 10 ? "10" : n == 1000 ? "1,000" : "10,000",
      time(took["Apply", way, n]), time(took["OneMore", way, n]), time(took["Connect", way, n]), time(took["FirstPacket", way, n])
  }
}'
