//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
	"github.com/userspace-proxy/userspace-proxy/bench/load"
	"github.com/userspace-proxy/userspace-proxy/bench/report"
)

func addrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// slack is how much longer than the work itself a run may take.
const slack = 2 * time.Minute

// measure has a path do a row's work once.
func measure(ctx context.Context, b *bed.Bed, dir string, r *row, p *path, d time.Duration) (report.Sample, error) {
	if r.mode == load.Idle {
		if err := p.restart(ctx, b, dir); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d+slack)
	defer cancel()
	if err := b.Node.FlushConntrack(); err != nil {
		return nil, err
	}
	before, err := p.usage()
	if err != nil {
		return nil, err
	}
	client, err := startChild(ctx, b.Client, loadWord, r.job(p, d))
	if err != nil {
		return nil, err
	}
	var s report.Sample
	if r.mode == load.Idle {
		s, err = measureIdle(ctx, client, p, before, d)
	} else {
		s, err = measureWork(b, client, r, p)
	}
	return s, errors.Join(err, client.end())
}

// measureWork is everything but Idle. What is charged begins when the
// connections that stay are there, and ends before they close.
func measureWork(b *bed.Bed, client *child, r *row, p *path) (report.Sample, error) {
	mallocs, err := p.mallocs(b.Node)
	if err != nil {
		return nil, err
	}
	before, err := p.cpu()
	if err != nil {
		return nil, err
	}
	result, err := client.work()
	if err != nil {
		return nil, err
	}
	after, err := p.cpu()
	if err != nil {
		return nil, err
	}
	s := report.Sample{report.Errors: float64(result.Errors), report.Lost: float64(result.Lost)}
	seconds := result.Elapsed.Seconds()
	done, perOp := float64(result.Ops), report.CPU
	unit := float64(time.Microsecond)
	if r.mode == load.Bulk {
		done, perOp, unit = float64(result.Bytes)/1e9, report.CPUPerGB, float64(time.Second)
		s[report.Throughput] = done / seconds
	} else {
		s[report.Rate] = done / seconds
		s[report.P50] = float64(result.P50) / float64(time.Microsecond)
		s[report.P99] = float64(result.P99) / float64(time.Microsecond)
	}
	if done == 0 || p.process == nil {
		return s, nil
	}
	s[perOp] = float64(after-before) / unit / done
	if p.stats != "" {
		now, err := p.mallocs(b.Node)
		if err != nil {
			return nil, err
		}
		s[report.Allocs] = max(0, float64(now.total-now.ask-mallocs.total-mallocs.ask)/done)
	}
	return s, nil
}

// measureIdle looks at the process when all connections have been held for d.
func measureIdle(ctx context.Context, client *child, p *path, before usage, d time.Duration) (report.Sample, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(d):
	}
	after, err := p.usage()
	if err != nil {
		return nil, err
	}
	result, err := client.work()
	if err != nil {
		return nil, err
	}
	s := report.Sample{report.Held: float64(result.Held), report.Alive: float64(result.Ops)}
	if held := float64(result.Held); held > 0 && p.process != nil {
		s[report.Memory] = float64(after.memory-before.memory) / held
		s[report.Descriptors] = float64(after.descriptors-before.descriptors) / held
	}
	return s, nil
}

// usage is what the path's process holds; nothing for the kernel.
func (p *path) usage() (usage, error) {
	if p.process == nil {
		return usage{}, nil
	}
	return p.process.holds()
}

// cpu is what the path's process has used so far; 0 for the kernel.
func (p *path) cpu() (time.Duration, error) {
	if p.process == nil {
		return 0, nil
	}
	return p.process.cpu()
}

// mallocCount is how many heap allocations a process has made so far, and how
// many it takes to ask.
type mallocCount struct{ total, ask int64 }

// mallocs asks a Go process, by its profile of the heap. It asks twice, to know
// what asking costs.
func (p *path) mallocs(node *bed.Host) (mallocCount, error) {
	if p.stats == "" {
		return mallocCount{}, nil
	}
	var counts [2]int64
	for i := range counts {
		err := node.Do(func() (err error) {
			counts[i], err = askMallocs(p.stats)
			return err
		})
		if err != nil {
			return mallocCount{}, fmt.Errorf("asking %s for its allocations: %w", p.name, err)
		}
	}
	return mallocCount{total: counts[1], ask: counts[1] - counts[0]}, nil
}

// askMallocs reads the count that ends a heap profile as text. It is exact, and
// asking costs the same each time; the metrics' go_memstats_mallocs_total is
// off by thousands.
//
// It speaks HTTP by hand: an http.Client would dial in another thread, which is
// not on this host.
func askMallocs(addr string) (int64, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // read only
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "GET /debug/pprof/heap?debug=1 HTTP/1.0\r\n\r\n"); err != nil {
		return 0, err
	}
	profile, err := io.ReadAll(c)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(profile)) {
		if count, ok := strings.CutPrefix(line, "# Mallocs = "); ok {
			return strconv.ParseInt(strings.TrimSpace(count), 10, 64)
		}
	}
	return 0, errors.New("there is no count of allocations in its heap profile")
}

// conntrackLosses is how many entries the host's table has refused or thrown
// out for want of room since it was made; false if the kernel does not tell.
func conntrackLosses(h *bed.Host) (int64, bool) {
	var text []byte
	err := h.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		return err
	})
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) < 2 {
		return 0, false
	}
	var sum int64
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] { // one for each CPU
		for i, field := range strings.Fields(line) {
			if i < len(names) && (names[i] == "drop" || names[i] == "early_drop") {
				n, err := strconv.ParseInt(field, 16, 64)
				if err != nil {
					return 0, false
				}
				sum += n
			}
		}
	}
	return sum, true
}
