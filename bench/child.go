//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
	"github.com/userspace-proxy/userspace-proxy/bench/load"
)

// This program starts itself on other hosts, with one of these words. The two
// speak in lines, over standard input and output:
//
//	load:   a load.Job -> "ready"; "go" -> a load.Result
//	serve:  -> "ready"; the end of the input ends it
const (
	loadWord  = "load"
	serveWord = "serve"
	readyLine = "ready"
	goLine    = "go"
)

// beLoad is this program where it makes the load.
func beLoad(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	var job load.Job
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &job)
	}
	if err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	result, err := job.Run(func() error {
		if _, err := fmt.Fprintln(out, readyLine); err != nil {
			return err
		}
		_, err := lines.ReadBytes('\n')
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// beServer is this program where it answers.
func beServer(in io.Reader, out io.Writer) error {
	everywhere := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.IPv4Unspecified(), port) }
	l := load.Listeners{Echo: []netip.AddrPort{everywhere(echoPort)}, Sink: []netip.AddrPort{everywhere(sinkPort)}}
	for _, a := range bed.Endpoints() { // one socket each, so that an answer comes from the address that was asked
		l.Datagrams = append(l.Datagrams, netip.AddrPortFrom(a, datagramsPort), netip.AddrPortFrom(a, newFlowsPort))
	}
	s, err := load.Listen(l)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	fmt.Fprintln(out, readyLine)
	s.Serve(ctx)
	return nil
}

// child is this program on another host.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr strings.Builder
}

// startChild starts this program on a host, gives it a line if there is one,
// and waits until it is ready. The caller calls end.
func startChild(ctx context.Context, host *bed.Host, word string, first any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, word)}
	c.cmd.Stderr = &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := host.Start(c.cmd); err != nil {
		return nil, err
	}
	if first != nil {
		if err := json.NewEncoder(c.in).Encode(first); err != nil {
			return nil, errors.Join(err, c.end())
		}
	}
	if line, err := c.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != readyLine {
		return nil, errors.Join(fmt.Errorf("%s on %s is not ready: %q", word, host.Name, line), c.end())
	}
	return c, nil
}

// work has a load do its job.
func (c *child) work() (load.Result, error) {
	if _, err := fmt.Fprintln(c.in, goLine); err != nil {
		return load.Result{}, err
	}
	var r load.Result
	err := json.NewDecoder(c.out).Decode(&r)
	return r, err
}

// end ends it and waits until it has. An error has what it said.
func (c *child) end() error {
	_ = c.in.Close() // may be closed already
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(c.stderr.String()))
	}
	return nil
}
