//go:build linux

package main

import (
	"time"

	"github.com/userspace-proxy/userspace-proxy/bench/load"
	"github.com/userspace-proxy/userspace-proxy/bench/report"
)

// row is one kind of work.
type row struct {
	key     string // for -only
	title   string
	note    string
	mode    load.Mode
	flows   int
	port    uint16
	columns []report.Metric
	targets []report.Target
}

const messageSize = 64

func (r *row) udp() bool { return r.mode == load.UDP || r.mode == load.UDPNew }

func (r *row) job(p *path, d time.Duration) load.Job {
	return load.Job{Mode: r.mode, Addr: addrPort(p.addr, r.port), Flows: r.flows, Size: messageSize, Duration: d}
}

// allRows are all kinds of work with their targets, which are for the path ownKey.
func allRows() []row {
	both := []string{haproxyKey, nginxKey}
	exchange := []report.Metric{report.Rate, report.P50, report.P99, report.CPU, report.Allocs, report.Errors}
	datagrams := []report.Metric{report.Rate, report.P50, report.P99, report.CPU, report.Allocs, report.Lost, report.Errors}
	bulk := []report.Metric{report.Throughput, report.CPUPerGB, report.Errors}
	atLeast := func(m report.Metric, factor float64, peers ...string) report.Target {
		return report.Target{Metric: m, AtLeast: true, Factor: factor, Peers: peers}
	}
	atMost := func(m report.Metric, factor float64, peers ...string) report.Target {
		return report.Target{Metric: m, Factor: factor, Peers: peers}
	}
	// 0.01 is none: what the process allocates beside its connections is in it.
	pingPong := []report.Target{
		atLeast(report.Rate, 1.05, both...), atMost(report.P99, 1, both...), atMost(report.CPU, 1, both...), atMost(report.Allocs, 0.01),
	}
	bulkTargets := []report.Target{
		atLeast(report.Throughput, 1, both...), atMost(report.CPUPerGB, 1, haproxyKey), atMost(report.CPUPerGB, 0.4, nginxKey),
	}
	const held = 9500
	return []row{
		{key: "ping-pong-1", title: "Ping-pong of 64 bytes, 1 connection", mode: load.PingPong, flows: 1, port: echoPort, columns: exchange, targets: pingPong},
		{key: "ping-pong-16", title: "Ping-pong of 64 bytes, 16 connections", mode: load.PingPong, flows: 16, port: echoPort, columns: exchange, targets: pingPong},
		{key: "ping-pong-256", title: "Ping-pong of 64 bytes, 256 connections", mode: load.PingPong, flows: 256, port: echoPort, columns: exchange, targets: pingPong},
		{key: "connect", title: "Connect, one ping-pong, close; 16 at once", mode: load.Connect, flows: 16, port: echoPort, columns: exchange,
			targets: []report.Target{atLeast(report.Rate, 1, both...), atMost(report.CPU, 1, both...), atMost(report.Allocs, 0.1)}}, // its struct comes from a pool
		{key: "bulk-1", title: "Bulk, 1 connection", mode: load.Bulk, flows: 1, port: sinkPort, columns: bulk, targets: bulkTargets},
		{key: "bulk-4", title: "Bulk, 4 connections", mode: load.Bulk, flows: 4, port: sinkPort, columns: bulk, targets: bulkTargets},
		{key: "idle", title: "9,500 idle connections", mode: load.Idle, flows: held, port: echoPort,
			note:    "Each proxy is started anew before it, with a limit of 20,000 descriptors.",
			columns: []report.Metric{report.Held, report.Alive, report.Memory, report.Descriptors},
			targets: []report.Target{atLeast(report.Held, held), atLeast(report.Alive, held), atMost(report.Memory, 1024), atMost(report.Descriptors, 2)}},
		{key: "udp-16", title: "UDP ping-pong of 64 bytes, 16 flows", mode: load.UDP, flows: 16, port: datagramsPort, columns: datagrams,
			note: "HAProxy carries no UDP."},
		{key: "udp-new", title: "UDP, a new flow for each ping-pong; 16 at once", mode: load.UDPNew, flows: 16, port: newFlowsPort, columns: datagrams,
			note: "nginx forgets a flow with its one answer, the others keep it for further datagrams."},
	}
}
