package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/internal/demo"
)

func (m *Main) newDemo() *cobra.Command {
	var period time.Duration
	var trace []string
	c := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Try it: Services and backends on loopback; no root, no cluster",
		Long: `Runs a proxy with Services of its own on loopback addresses and backends in the
same process, and prints what to try. It needs no rights and no network. One
backend dies and comes back all the time. Ctrl-C ends it and leaves nothing.`,
		DisableFlagsInUseLine: true,
		Args:                  noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if period <= 0 {
				return usage(fmt.Errorf("--period: must be above 0, got %v", period))
			}
			m.takeSignals()
			d, err := demo.Start()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, d.Close()) }()
			return m.demo(c.Context(), d, period, trace)
		},
	}
	grouped(c.Flags(), groupDemo, func(fs *pflag.FlagSet) {
		fs.DurationVar(&period, "period", 10*time.Second, "have the backend "+demo.Mortal+" die, and come back, after this time")
		addTraceFlag(fs, &trace)
	})
	return c
}

// demo runs the same server as run does, on the demo's manifest.
func (m *Main) demo(ctx context.Context, d *demo.Demo, period time.Duration, trace []string) error {
	o := new(options)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addRunFlags(flags) // for their defaults
	o.files = []string{d.Dir}
	o.redirect = redirectNone
	o.allowLoopbackEndpoints = true
	o.drainTimeout = 0
	o.healthzAddress = ""
	o.hardFail = true // see below
	o.metricsAddress = freeOr(o.metricsAddress)
	o.trace = trace
	if err := o.completeRun(flags); err != nil {
		return err
	}
	log := m.newLog(o)
	log.SetLevel(logrus.WarnLevel)
	s, err := m.newServer(ctx, o, log)
	if errors.Is(err, syscall.EADDRINUSE) { // somebody was faster: a second demo, say
		o.metricsAddress = anyPort
		s, err = m.newServer(ctx, o, log)
	}
	if err != nil {
		return err
	}
	page := demoPage{services: d.Services, dir: d.Dir, status: s.status.Addresses()[0].String(), program: m.Name, style: m.style()}
	err = together(ctx, s.run, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-s.translator.synced:
		}
		if _, err := fmt.Fprint(m.Stdout, page.String()); err != nil {
			return fmt.Errorf("showing the demo: %w", err)
		}
		// From here on the log tells what becomes of changes to the manifest.
		log.SetLevel(o.meant.level)
		defer log.SetLevel(logrus.WarnLevel)
		ctx, end := context.WithCancel(ctx)
		defer end()
		var unseen error // nobody looks any more
		err := d.Run(ctx, period, func(what string) {
			if _, unseen = fmt.Fprintf(m.Stdout, "%s  %s\n", time.Now().Format(time.TimeOnly), what); unseen != nil {
				end()
			}
		})
		return errors.Join(err, unseen)
	})
	if err == nil {
		fmt.Fprintln(m.Stdout, "\nThe demo has ended and left nothing.")
	}
	return err
}

// anyPort is where the status page stands when its own port is in use.
const anyPort = "127.0.0.1:0"

// freeOr is an address, or one with any free port where its own is in use.
func freeOr(address string) string {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return anyPort
	}
	_ = l.Close() // it was only tried
	return address
}
