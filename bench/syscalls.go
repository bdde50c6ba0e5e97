//go:build linux

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
	"github.com/userspace-proxy/userspace-proxy/bench/load"
)

// callCount is how often a system call was made for one operation, or for a
// million bytes.
type callCount struct {
	name string
	each float64
}

// countCalls has the path do the row's work once more, under perf, which slows
// it down a little: nothing else is measured.
func countCalls(ctx context.Context, b *bed.Bed, r *row, p *path, d time.Duration) (counts []callCount, err error) {
	ctx, cancel := context.WithTimeout(ctx, d+slack)
	defer cancel()
	pids, err := withChildren(strconv.Itoa(p.process.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	client, err := startChild(ctx, b.Client, loadWord, r.job(p, d))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.end()) }()
	perf, err := startPerf(ctx, pids)
	if err != nil {
		return nil, err
	}
	result, workErr := client.work()
	table, err := perf.end()
	if err := errors.Join(workErr, err); err != nil {
		return nil, err
	}
	done := float64(result.Ops)
	if r.mode == load.Bulk {
		done = float64(result.Bytes) / 1e6
	}
	if done == 0 {
		return nil, errors.New("nothing was done")
	}
	return parseCalls(table, done), nil
}

// perf is a running perf stat (linux-perf of Debian), see its manual for the
// two pipes: it is told to start and says that it has.
type perf struct {
	cmd  *exec.Cmd
	text *strings.Builder
}

func startPerf(ctx context.Context, pids []string) (*perf, error) {
	var text strings.Builder
	cmd := exec.CommandContext(ctx, "perf", "stat", "--field-separator", ",", "--event", "syscalls:sys_enter_*",
		"--delay", "-1", "--control", "fd:3,4", "--pid", strings.Join(pids, ","))
	cmd.Stdout, cmd.Stderr = &text, &text
	orderRead, order, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer order.Close() //nolint:errcheck // one word is written
	ack, ackWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, orderRead.Close())
	}
	defer ack.Close() //nolint:errcheck // read only
	cmd.ExtraFiles = []*os.File{orderRead, ackWrite}
	err = cmd.Start()
	_, _ = orderRead.Close(), ackWrite.Close()
	if err != nil {
		return nil, err
	}
	if _, err := order.WriteString("enable\n"); err == nil {
		_, err = bufio.NewReader(ack).ReadString('\n')
		if err == nil {
			return &perf{cmd: cmd, text: &text}, nil
		}
	}
	_ = cmd.Process.Kill()
	return nil, fmt.Errorf("perf does not count: %w: %s", cmd.Wait(), strings.TrimSpace(text.String()))
}

// end ends the count and returns it.
func (p *perf) end() (string, error) {
	_ = p.cmd.Process.Signal(os.Interrupt)
	if err := p.cmd.Wait(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !exit.Sys().(interface{ Signaled() bool }).Signaled() { // it ends itself by the signal
			return "", fmt.Errorf("perf: %w: %s", err, strings.TrimSpace(p.text.String()))
		}
	}
	return p.text.String(), nil
}

// parseCalls reads perf's lines, "count,unit,event,...": the most frequent call
// first, and none that is rarer than one in a hundred operations.
func parseCalls(table string, done float64) []callCount {
	var counts []callCount
	for line := range strings.Lines(table) {
		fields := strings.Split(line, ",")
		if len(fields) < 3 {
			continue
		}
		name, ok := strings.CutPrefix(fields[2], "syscalls:sys_enter_")
		n, err := strconv.ParseFloat(fields[0], 64)
		if !ok || err != nil || n/done < 0.01 { // "<not counted>" is no number
			continue
		}
		counts = append(counts, callCount{name: name, each: n / done})
	}
	slices.SortFunc(counts, func(a, b callCount) int {
		return cmp.Or(cmp.Compare(b.each, a.each), strings.Compare(a.name, b.name))
	})
	return counts
}

// inWords is "4.0 (read 2.0, write 2.0)".
func inWords(counts []callCount) string {
	sum := 0.0
	calls := make([]string, 0, len(counts))
	for _, c := range counts {
		sum += c.each
		calls = append(calls, fmt.Sprintf("%s %.2f", c.name, c.each))
	}
	return fmt.Sprintf("%.2f (%s)", sum, strings.Join(calls, ", "))
}
