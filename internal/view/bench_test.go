package view

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/layout"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// large is a report of ten thousand Services with three endpoints each.
func large() status.Report {
	at := func(x byte, n int, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, x, byte(n >> 8), byte(n)}), port)
	}
	ports := make([]proxy.PortStatus, 10_000)
	for n := range ports {
		ports[n] = proxy.PortStatus{
			Name: fmt.Sprintf("namespace-%d/service-%d:http/TCP", n%100, n), Family: service.IPv4, Source: "kubernetes",
			Portals: []proxy.PortalStatus{{
				Kind: service.ClusterIP, Addr: at(96, n, 80), Listener: "169.254.77.1:10000", State: proxy.StateServing, Hits: 7,
			}},
		}
		for e := range 3 {
			ports[n].Endpoints = append(ports[n].Endpoints, proxy.EndpointStatus{
				Addr: at(byte(e), n, 8080), Pod: fmt.Sprintf("service-%d-%d", n, e), Picked: true, Why: "ready",
			})
		}
	}
	return status.Report{Status: proxy.Status{Ports: ports}}
}

// BenchmarkStatus is what "userspace-proxy status" does with many Services: the
// server writes, the client reads, and a table is made.
func BenchmarkStatus(b *testing.B) {
	r, log := large(), logrus.New()
	log.SetOutput(io.Discard)
	s, err := status.Listen(status.Config{
		MetricsAddress: "127.0.0.1:0", Report: func(status.Lists) status.Report { return r }, Metrics: prometheus.NewRegistry(), Log: log,
	})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(b, <-ended)
	}()
	client, err := status.NewClient(s.Addresses()[0].String())
	require.NoError(b, err)
	defer client.Close()
	b.Run("fetch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := client.Report(ctx, status.Lists{})
			require.NoError(b, err)
		}
	})
	b.Run("table", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Overview(r, layout.Style(false))
		}
	})
}
