// Command userspace-proxy balances the connections of Kubernetes Services in
// user space. This package reads flags and puts the other packages together;
// each command has a file of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/internal/kubelog"
	"github.com/userspace-proxy/userspace-proxy/proxy"
)

func main() {
	runtime.GOMAXPROCS(proxy.GoProcessors(runtime.GOMAXPROCS(0)))
	// The first signal asks for an end, the second one ends this at once, and so
	// does every one before TakeSignals.
	signals := make(chan os.Signal, 2)
	ctx, end := context.WithCancel(context.Background())
	go func() {
		<-signals
		end()
		second := <-signals
		signal.Reset()
		if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(second) != nil {
			os.Exit(exitFailed)
		}
	}()
	m := Main{Name: os.Args[0], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, LeadKlog: kubelog.Lead}
	m.TakeSignals = func() {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // whoever reads the log may go: connections stay
		if !signal.Ignored(syscall.SIGHUP) {                    // as nohup has it
			signal.Notify(signals, syscall.SIGHUP) // the terminal is gone
		}
	}
	os.Exit(m.Run(ctx, os.Args[1:]))
}

// Main is the program as main runs it, and as tests do.
type Main struct {
	Name           string // as it was called, for commands to paste
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// LeadKlog leads klog into a log, as kubelog.Lead does. A process has but one
	// klog, so it is for whoever owns the process; nil leaves it alone.
	LeadKlog func(log logrus.FieldLogger, verbosity int) error
	// TakeSignals has signals end Run's context from now on. Until a command calls
	// it there is nothing to bring to an end, and a signal ends the process, even
	// while it waits for standard input, which no context can. nil does nothing.
	TakeSignals func()
}

// takeSignals is called where from now on something must be brought to an end.
func (m *Main) takeSignals() {
	if m.TakeSignals != nil {
		m.TakeSignals()
	}
}

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // at run time
	exitUsage  = 2 // wrong usage or configuration

	// Of explain alone.
	exitRefused   = 3
	exitDropped   = 4
	exitElsewhere = 5
)

// Run runs one command until it is done or ctx ends, and returns the exit
// code. Everything that it started has ended by then.
func (m *Main) Run(ctx context.Context, args []string) int {
	root := m.newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would stand for those of the process
	root.SetIn(m.Stdin)
	root.SetOut(m.Stdout)
	root.SetErr(m.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	var code codeError
	if errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintln(m.Stderr, message(err))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a fault of whoever called the program or wrote its
// configuration.
type usageError struct {
	err  error
	hint string // where to read more; may be empty
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// message is an error as people read it: a line for each thing that is wrong,
// and each says whose it is.
func message(err error) string {
	lines := strings.Split(err.Error(), "\n")
	var usage *usageError
	if errors.As(err, &usage) && usage.hint != "" {
		lines = append(lines, usage.hint)
	}
	return programName + ": " + strings.Join(lines, "\n"+programName+": ")
}
