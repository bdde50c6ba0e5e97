//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/bench/report"
)

// machineFacts are about what does not change during the run.
func machineFacts(binary string) []report.Fact {
	return []report.Fact{
		{Name: "processor", Value: fmt.Sprintf("%s, %d cores for client, proxy and server together", processor(), runtime.NumCPU())},
		{Name: "kernel", Value: kernel()},
		{Name: "userspace-proxy", Value: said(binary, "version")},
		{Name: "repository", Value: "commit " + said("git", "describe", "--always", "--dirty")},
		{Name: "HAProxy", Value: said("haproxy", "-v")},
		{Name: "nginx", Value: said("nginx", "-v")},
	}
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

// said is the first line that a program prints.
func said(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return "unknown: " + err.Error()
	}
	return line
}

// quiet is how busy the machine is, apart from what is measured.
type quiet struct {
	load         string // of the last minute
	steal, total int64  // ticks
}

func lookQuiet() quiet {
	var q quiet
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		q.load, _, _ = strings.Cut(string(text), " ")
	}
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		first, _, _ := strings.Cut(string(text), "\n")
		for i, field := range strings.Fields(first) {
			n, _ := strconv.ParseInt(field, 10, 64) // the first is "cpu"
			if i <= 8 {                             // what follows, guests' time, is in user already
				q.total += n
			}
			if i == 8 {
				q.steal = n
			}
		}
	}
	return q
}

// busy reports a load before the run that falsifies it.
func (q quiet) busy() bool {
	load, err := strconv.ParseFloat(q.load, 64)
	return err == nil && load > 0.5
}

// runFacts are about the run itself.
func runFacts(o options, began time.Time, before, after quiet, lost int64, known bool) []report.Fact {
	load := fmt.Sprintf("%s in the minute before, %s in the last minute", before.load, after.load)
	if before.busy() {
		load += "; others were at work on this machine, so the figures say little"
	}
	if total := after.total - before.total; total > 0 {
		load += fmt.Sprintf("; the hypervisor withheld %.1f %% of the processor time", 100*float64(after.steal-before.steal)/float64(total))
	}
	conntrack := "emptied before each run; no entry was lost for want of room"
	switch {
	case !known:
		conntrack = "emptied before each run; this kernel does not tell whether entries were lost"
	case lost > 0:
		conntrack = fmt.Sprintf("emptied before each run; %d entries were lost for want of room (net.netfilter.nf_conntrack_max), which falsifies short connections", lost)
	}
	return []report.Fact{
		{Name: "date", Value: fmt.Sprintf("%s, %s long", began.UTC().Format("2006-01-02 15:04 MST"), time.Since(began).Round(time.Second))},
		{Name: "runs", Value: fmt.Sprintf("%d rounds, %s each, paths in turn; medians, and ± half the range of all rounds", o.rounds, o.duration)},
		{Name: "load average", Value: load},
		{Name: "conntrack table", Value: conntrack},
	}
}
