#!/usr/bin/env bash
# The built binary against real clients and servers. Arguments go to go test:
# scripts/e2e.sh -run TestMatrix
set -euo pipefail
cd "$(dirname "$0")/../e2e"
export PATH=$PATH:/usr/sbin:/sbin
# -v: what the tests print, the matrix first of all, is for people. -parallel:
# most of them wait more than they compute.
go test -race -count=1 -timeout=40m -parallel="$((1 + $(nproc)))" -v "$@" ./...
