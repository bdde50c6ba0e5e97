//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
	"github.com/userspace-proxy/userspace-proxy/bench/load"
	"github.com/userspace-proxy/userspace-proxy/bench/report"
)

// session is one run of everything.
type session struct {
	options
	bed      *bed.Bed
	dir      string // of configurations and logs
	progress io.Writer

	samples  []map[string][]report.Sample // by row and path
	calls    map[string]string            // what is said of system calls, by the row's key
	failures []report.Fact                // measurements that came to nothing
}

// measureAll starts server and proxies, and does all rows. Row by row, and
// within a row in rounds, so that what changes on the machine meanwhile meets
// all paths alike.
func (s *session) measureAll(ctx context.Context) error {
	server, err := startChild(ctx, s.bed.Back, serveWord, nil)
	if err != nil {
		return err
	}
	defer server.end() //nolint:errcheck // nothing depends on how it ends
	defer s.killAll()
	for _, p := range s.paths {
		if err := p.open(ctx, s.bed, s.dir); err != nil {
			return err
		}
	}
	for i := range s.rows {
		s.samples = append(s.samples, make(map[string][]report.Sample))
		for round := range s.rounds {
			if err := s.round(ctx, i, round); err != nil {
				return err
			}
		}
		if s.syscalls {
			s.countCalls(ctx, i)
		}
	}
	return ctx.Err()
}

// countCalls adds the system calls of all proxies to a row's notes.
func (s *session) countCalls(ctx context.Context, i int) {
	r := &s.rows[i]
	if r.mode == load.Idle {
		return
	}
	unit := "operation"
	if r.mode == load.Bulk {
		unit = "million bytes"
	}
	note := "System calls for each " + unit + ", by perf:"
	for _, p := range s.paths {
		if p.process == nil || r.udp() && !p.udp {
			continue
		}
		counts, err := countCalls(ctx, s.bed, r, p, s.duration)
		if err != nil {
			s.fail(r, p, "system calls", err)
			continue
		}
		words := inWords(counts)
		fmt.Fprintf(s.progress, "%-14s system calls  %-25s  %s\n", r.key, p.name, words)
		note += fmt.Sprintf("\n- %s: %s", p.name, words)
	}
	s.calls[r.key] = note
}

// fail keeps for the report what could not be measured.
func (s *session) fail(r *row, p *path, what string, err error) {
	fmt.Fprintf(s.progress, "%s, %s, %s: failed: %v\n", r.key, p.name, what, err)
	why, _, _ := strings.Cut(err.Error(), "\n")
	s.failures = append(s.failures, report.Fact{Name: "FAILED", Value: fmt.Sprintf("%s, %s, %s: %s", r.key, p.name, what, why)})
}

func (s *session) killAll() {
	for _, p := range s.paths {
		if p.process != nil {
			p.process.kill()
		}
	}
}

// round has each path do a row's work once. Each round begins with another
// path. A path that fails does not end the run, it is told of in the report.
func (s *session) round(ctx context.Context, i, round int) error {
	r := &s.rows[i]
	for k := range s.paths {
		p := s.paths[(k+round)%len(s.paths)]
		if r.udp() && !p.udp {
			continue
		}
		fmt.Fprintf(s.progress, "%-14s round %d of %d  %-25s", r.key, round+1, s.rounds, p.name)
		sample, err := measure(ctx, s.bed, s.dir, r, p, s.duration)
		if ctx.Err() != nil {
			fmt.Fprintln(s.progress)
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintln(s.progress)
			s.fail(r, p, fmt.Sprintf("round %d", round+1), err)
			if err := p.revive(ctx, s.bed, s.dir); err != nil {
				return err
			}
			continue
		}
		s.samples[i][p.name] = append(s.samples[i][p.name], sample)
		fmt.Fprintln(s.progress, r.brief(sample))
	}
	return nil
}

// brief is a sample in a few words.
func (r *row) brief(s report.Sample) string {
	text := ""
	for _, m := range r.columns {
		if v, ok := s[m]; ok {
			text += fmt.Sprintf("  %s %s", m, m.Format(v))
		}
	}
	return text
}

// revive starts the path's process again if it has ended.
func (p *path) revive(ctx context.Context, b *bed.Bed, dir string) error {
	if p.process == nil {
		return nil
	}
	select {
	case <-p.process.done:
		return p.restart(ctx, b, dir)
	default:
		return nil
	}
}

// report is what was measured, by the names of the paths.
func (s *session) report() *report.Report {
	names := make(map[string]string)
	for _, p := range allPaths("") {
		names[p.key] = p.name
	}
	r := &report.Report{Ours: names[ownKey], Peers: []string{names[haproxyKey], names[nginxKey]}}
	for _, p := range s.paths {
		r.Paths = append(r.Paths, p.name)
	}
	for i := range s.rows {
		from := &s.rows[i]
		row := report.Row{Title: from.title, Note: from.note, After: s.calls[from.key], Columns: from.columns, Samples: s.samples[i]}
		for _, t := range from.targets {
			peers := make([]string, 0, len(t.Peers))
			for _, key := range t.Peers {
				peers = append(peers, names[key])
			}
			t.Peers = peers
			row.Targets = append(row.Targets, t)
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}
