package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

const kubeProxy = "kube-proxy-"

// isProxy says whether a name is one that proxy.sh knows, with flags or without.
func isProxy(name string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, kubeProxy), " ")
	return first == "nftables" || first == "iptables"
}

// called is a proxy's name for people.
func called(proxy string) string {
	if mode, ok := strings.CutPrefix(proxy, kubeProxy); ok {
		return "kube-proxy, " + mode
	}
	return "userspace-proxy, " + strings.ReplaceAll(proxy, " ", ", ")
}

// ordered is this proxy's kinds first, nftables before iptables, and each without
// flags before those with.
func ordered[T any](by map[string]T) []string {
	return slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if c := order(a) - order(b); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
}

func order(proxy string) int {
	n := 0
	if strings.HasPrefix(proxy, kubeProxy) {
		n += 2
	}
	if strings.HasPrefix(strings.TrimPrefix(proxy, kubeProxy), "iptables") {
		n++
	}
	return n
}
