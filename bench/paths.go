//go:build linux

package main

import (
	"context"
	"embed"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
)

// The peers' configurations, and the Service.
//
//go:embed peers
var peers embed.FS

// The ports of every path's address, and of the server.
const (
	echoPort      = 7000
	datagramsPort = 7001
	sinkPort      = 7002
	newFlowsPort  = 7003
)

// path is a way from the client to the server.
type path struct {
	key   string // for -paths
	name  string
	addr  netip.Addr
	local bool   // the node has the address itself, on lo
	udp   bool   // it carries UDP
	stats string // where on the node it serves its profiles; empty: nowhere

	// begin starts it; nil for the kernel.
	begin func(ctx context.Context, node *bed.Host, dir string) (*process, error)
	// rules are loaded into the node's nftables; empty for none.
	rules string

	process *process // what runs now
}

// The keys of paths that are spoken of elsewhere.
const (
	haproxyKey = "haproxy"
	nginxKey   = "nginx"
	ownKey     = "own"
)

// allPaths are all ways; binary is the proxy of this repository.
func allPaths(binary string) []*path {
	addr := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, last}) }
	const ownStats, noneStats = "127.0.0.1:10249", "127.0.0.1:10250"
	return []*path{
		{key: "dnat", name: "kernel DNAT", addr: addr(10), udp: true, rules: "peers/dnat.nft"},
		{key: haproxyKey, name: "HAProxy", addr: addr(11), local: true,
			begin: func(ctx context.Context, node *bed.Host, dir string) (*process, error) {
				return start(ctx, node, dir, "haproxy", "-db", "-f", filepath.Join(dir, "haproxy.cfg"))
			}},
		{key: nginxKey, name: "nginx", addr: addr(12), local: true, udp: true,
			begin: func(ctx context.Context, node *bed.Host, dir string) (*process, error) {
				return start(ctx, node, dir, "nginx", "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"))
			}},
		{key: ownKey, name: "userspace-proxy", addr: addr(13), udp: true, stats: ownStats,
			begin: func(ctx context.Context, node *bed.Host, dir string) (*process, error) {
				return start(ctx, node, dir, binary, ownFlags(filepath.Join(dir, "services.yaml"), "nftables", ownStats)...)
			}},
		{key: "none", name: "userspace-proxy, no rules", addr: addr(14), local: true, udp: true, stats: noneStats,
			begin: func(ctx context.Context, node *bed.Host, dir string) (*process, error) {
				return start(ctx, node, dir, binary, ownFlags(filepath.Join(dir, "none.yaml"), "none", noneStats)...)
			}},
	}
}

func ownFlags(file, redirect, stats string) []string {
	return []string{"run", "--file", file, "--redirect", redirect, "--hostname-override", "bench",
		"--log-level", "warning", "--healthz-bind-address", "", "--metrics-bind-address", stats, "--profiling"}
}

// writeConfigurations puts what the paths read into a directory.
func writeConfigurations(dir string) error {
	entries, err := peers.ReadDir("peers")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := peers.ReadFile("peers/" + entry.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, entry.Name()), text, 0o600); err != nil {
			return err
		}
	}
	// The same Service, at the address of the path without rules.
	services, err := peers.ReadFile("peers/services.yaml")
	if err != nil {
		return err
	}
	none := strings.ReplaceAll(string(services), "10.96.0.13", "10.96.0.14")
	return os.WriteFile(filepath.Join(dir, "none.yaml"), []byte(none), 0o600)
}

// open makes the path ready for its first connection.
func (p *path) open(ctx context.Context, b *bed.Bed, dir string) error {
	if p.local {
		if err := b.Node.AddAddress(p.addr); err != nil {
			return err
		}
	}
	if p.rules != "" {
		if err := b.Node.Run(exec.CommandContext(ctx, "nft", "-f", filepath.Join(dir, filepath.Base(p.rules)))); err != nil {
			return err
		}
	}
	return p.restart(ctx, b, dir)
}

// restart starts the path's process anew and waits until it carries.
func (p *path) restart(ctx context.Context, b *bed.Bed, dir string) error {
	if p.begin != nil {
		if p.process != nil {
			p.process.kill()
		}
		var err error
		if p.process, err = p.begin(ctx, b.Node, dir); err != nil {
			return err
		}
	}
	if err := awaitEcho(ctx, b.Client, netip.AddrPortFrom(p.addr, echoPort), p.process); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}
