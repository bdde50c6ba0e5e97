# Run "make" or "make help" for what there is.
.DEFAULT_GOAL := help
SHELL := /usr/bin/env bash
BINARY := bin/userspace-proxy

.PHONY: help build demo controlplane test lint e2e e2e-cluster fuzz bench bench-micro bench-rules clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/userspace-proxy
	CGO_ENABLED=0 go build -trimpath -o $(BINARY) ./cmd/userspace-proxy

demo: build ## a proxy with backends of its own on loopback; no root; Ctrl-C ends it
	@exec $(BINARY) demo

controlplane: ## a real kube-apiserver, kubectl and etcd for the tests, in bin/ (up to 15 minutes, once for a machine)
	@scripts/controlplane.sh

test: ## every test; as root on Debian it installs what they need
	@scripts/deps.sh
	@scripts/controlplane.sh
	@scripts/test.sh

lint: ## golangci-lint (built into bin/ the first time), gofmt, go mod tidy
	@scripts/lint.sh

e2e: ## only the end-to-end tests: the binary in network namespaces (root)
	@scripts/deps.sh
	@scripts/controlplane.sh
	@scripts/e2e.sh

e2e-cluster: ## Kubernetes' own specs on three nodes of this machine (root, one to two hours); writes docs/conformance.md
	@e2e/cluster/conformance.sh

fuzz: ## every fuzz target for FUZZTIME (5s)
	@scripts/fuzz.sh

bench: build ## side by side with HAProxy and nginx (root, ten minutes, a quiet machine); writes docs/benchmarks.md
	@scripts/deps.sh bench
	@CGO_ENABLED=0 go build -o bin/bench ./bench
	@PATH=$$PATH:/usr/sbin:/sbin exec bin/bench -binary $(BINARY) -doc docs/benchmarks.md $(BENCH)

bench-micro: ## the benchmarks of the packages, against those saved by SAVE=1 before
	@scripts/bench-micro.sh $(BENCH)

bench-rules: ## what rules cost at 10, 1,000 and 10,000 Services, by nftables and iptables (root, two minutes)
	@scripts/deps.sh
	@scripts/bench-rules.sh $(BENCH)

clean: ## remove what was built
	rm -rf bin dist coverage.out
