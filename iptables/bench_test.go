package iptables

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// BenchmarkChains is what a Sync computes before it knows whether anything is
// to be done.
func BenchmarkChains(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := dual().Defaults()
			redirects := clusterIPs(service.IPv4, n)
			before := map[place][]string{}
			b.ReportAllocs()
			for b.Loop() {
				entries, err := c.entries(redirects)
				require.NoError(b, err)
				now := c.chains(service.IPv4, entries)
				_ = change(before, now)
				before = now
			}
		})
	}
}
