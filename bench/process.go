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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
)

// process is a running proxy with all its workers.
type process struct {
	cmd  *exec.Cmd
	log  string        // file with what it printed
	done chan struct{} // closed when it has ended
}

// start starts a proxy. It ends with ctx, or by kill.
func start(ctx context.Context, node *bed.Host, dir, program string, args ...string) (*process, error) {
	log, err := os.CreateTemp(dir, filepath.Base(program)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has it now
	p := &process{cmd: exec.CommandContext(ctx, program, args...), log: log.Name(), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := node.Start(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in the log
	}()
	return p, nil
}

// kill ends it at once and waits until it has.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// said is the end of what it has printed.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// awaitEcho waits until an address echoes a byte, or the process has ended.
func awaitEcho(ctx context.Context, from *bed.Host, to netip.AddrPort, p *process) error {
	var ended <-chan struct{}
	said := func() string { return "" }
	if p != nil {
		ended, said = p.done, p.said
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := from.Do(func() error { return echoOnce(to) })
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not carry a byte and its echo: %w\n%s", to, err, said())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return fmt.Errorf("it has ended:\n%s", said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func echoOnce(to netip.AddrPort) error {
	const patience = 300 * time.Millisecond
	c, err := net.DialTimeout("tcp4", to.String(), patience)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // all is said
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// usage is what a process and all its children have used so far, or hold.
type usage struct {
	cpu         time.Duration // user and system
	memory      int           // bytes: of shared pages, a share
	descriptors int
}

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// cpu is the CPU time of the process and its children.
func (p *process) cpu() (time.Duration, error) {
	u, err := p.sum(func(pid string, u *usage) error {
		fields, err := stat(pid)
		if err != nil {
			return err
		}
		for _, ticks := range fields[11:13] { // utime and stime, proc(5)
			n, err := strconv.Atoi(ticks)
			if err != nil {
				return err
			}
			u.cpu += time.Duration(n) * tick
		}
		return nil
	})
	return u.cpu, err
}

// holds is the memory and descriptors of the process and its children.
func (p *process) holds() (usage, error) {
	return p.sum(func(pid string, u *usage) error {
		rollup, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(rollup)) {
			if kb, ok := strings.CutPrefix(line, "Pss:"); ok {
				n, err := strconv.Atoi(strings.Fields(kb)[0])
				if err != nil {
					return err
				}
				u.memory += n << 10
			}
		}
		open, err := os.ReadDir("/proc/" + pid + "/fd")
		u.descriptors += len(open)
		return err
	})
}

// sum adds up what add finds for the process and each of its descendants.
func (p *process) sum(add func(pid string, u *usage) error) (usage, error) {
	select {
	case <-p.done:
		return usage{}, fmt.Errorf("%s has ended:\n%s", p.cmd.Path, p.said())
	default:
	}
	pids, err := withChildren(strconv.Itoa(p.cmd.Process.Pid))
	if err != nil {
		return usage{}, err
	}
	var u usage
	for _, pid := range pids {
		if err := add(pid, &u); err != nil {
			return usage{}, fmt.Errorf("reading what process %s of %s uses: %w", pid, p.cmd.Path, err)
		}
	}
	return u, nil
}

// withChildren is a process and all that descend from it.
func withChildren(pid string) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := make(map[string][]string)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		fields, err := stat(e.Name())
		if errors.Is(err, os.ErrNotExist) || len(fields) < 2 {
			continue // ended meanwhile
		}
		children[fields[1]] = append(children[fields[1]], e.Name())
	}
	all := []string{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}

// stat is /proc/PID/stat from its third field on, the state.
func stat(pid string) ([]string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	return strings.Fields(rest), nil
}
