package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/internal/layout"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/internal/view"
)

// statusQuery is what is asked of a running proxy, and how it is shown.
type statusQuery struct {
	address, namespace, form string
	watch                    bool
	every                    time.Duration
	most                     int // connections, and as many flows

	table func(status.Report, layout.Style) string
	list  bool // the connections and flows too
	json  func(status.Report) any
}

func (m *Main) newStatus() *cobra.Command {
	c := m.statusCommand("status [SERVICE | NAMESPACE/SERVICE] [flags]", statusQuery{
		table: view.Overview,
		json:  func(r status.Report) any { return r },
	})
	c.Short = "A running proxy's services, endpoints, connections, problems"
	c.Long = `Asks a running proxy what it serves: its sources, every service port with its
portals ("at") and endpoints ("to"), their state and why, and what stands in the
way. With a name or -n it tells of those Services alone. "status connections"
lists connections and flows, "status problems" all problems; a Service of such a
name is asked for as NAMESPACE/connections.`
	c.Example = `  userspace-proxy status
  userspace-proxy status shop/web --watch
  userspace-proxy status -o json | jq '.ports[] | select(.endpoints == [])'`
	connections := m.statusCommand("connections [SERVICE | NAMESPACE/SERVICE] [flags]", statusQuery{
		table: view.Connections, list: true,
		json: func(r status.Report) any {
			return map[string]any{
				"connections": r.Connections, "connectionsOpen": r.ConnectionsOpen, "flows": r.Flows, "flowsOpen": r.FlowsOpen,
			}
		},
	})
	connections.Short = "TCP connections and UDP flows one by one, with bytes and age"
	problems := m.statusCommand("problems [SERVICE | NAMESPACE/SERVICE] [flags]", statusQuery{
		table: view.Problems,
		json:  func(r status.Report) any { return map[string]any{"problems": r.Problems} },
	})
	problems.Short = "What stands in the way, and what to do about it"
	c.AddCommand(connections, problems)
	return c
}

// statusCommand is a command that asks and shows.
func (m *Main) statusCommand(use string, q statusQuery) *cobra.Command {
	c := &cobra.Command{
		Use: use, DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{err: fmt.Errorf("stray argument %q: give the name of one Service", args[1]), hint: seeHelp(c)}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			filter, err := q.check(args)
			if err != nil {
				return err
			}
			client, err := status.NewClient(q.address)
			if err != nil {
				return usage(fmt.Errorf("--address: %w", err))
			}
			defer client.Close()
			if q.watch {
				m.takeSignals()
				return m.watchStatus(c.Context(), client, q, filter)
			}
			text, err := m.frame(c.Context(), client, q, filter)
			if err == nil {
				_, err = io.WriteString(m.Stdout, text)
			}
			return err
		},
	}
	fs := c.Flags()
	addAddressFlag(fs, &q.address)
	grouped(fs, groupAsk, func(fs *pflag.FlagSet) {
		fs.StringVarP(&q.namespace, "namespace", "n", "", "tell of the Services in this `namespace` alone")
		if q.list {
			fs.IntVar(&q.most, "most", 1000, "list at most this `number` of connections, and of flows")
		}
	})
	grouped(fs, groupOutput, func(fs *pflag.FlagSet) {
		fs.StringVarP(&q.form, "output", "o", "table", "print this `form`: table, or json, whose names are those of /statusz")
		fs.BoolVarP(&q.watch, "watch", "w", false, "ask again and again, until Ctrl-C; on a terminal in place")
		fs.DurationVar(&q.every, "interval", 2*time.Second, "with --watch, ask this often")
	})
	return c
}

// check tells what is wrong, and what to filter by.
func (q *statusQuery) check(args []string) (view.Filter, error) {
	name := ""
	if len(args) == 1 {
		name = args[0]
	}
	filter, ok := view.ParseFilter(name, q.namespace)
	switch {
	case !ok:
		return filter, usage(fmt.Errorf("--namespace: %q is asked for, and not in %s", name, q.namespace))
	case q.form != "table" && q.form != "json":
		return filter, usage(fmt.Errorf("--output: must be table or json, got %q", q.form))
	case q.every <= 0:
		return filter, usage(fmt.Errorf("--interval: must be above 0, got %v", q.every))
	case q.list && q.most < 1:
		return filter, usage(fmt.Errorf("--most: must be above 0, got %d", q.most))
	}
	return filter, nil
}

// frame is what is shown at one moment.
func (m *Main) frame(ctx context.Context, client *status.Client, q statusQuery, filter view.Filter) (string, error) {
	lists := status.Lists{}
	if q.list {
		lists = status.Lists{Connections: q.most, Flows: q.most}
		if !filter.IsAll() { // it is filtered here
			lists = status.Lists{Connections: status.MostListed, Flows: status.MostListed}
		}
	}
	r, err := client.Report(ctx, lists)
	if err != nil {
		return "", err
	}
	r = filter.Of(r)
	if filter.Service != "" && len(r.Ports) == 0 && len(r.Problems) == 0 {
		return "", fmt.Errorf("%s knows no Service of the name %s", client.Base(), filter)
	}
	if q.form == "json" {
		var text strings.Builder
		err := writeIndented(&text, q.json(r))
		return text.String(), err
	}
	return q.table(r, m.style()), nil
}

// watchStatus shows frame after frame until ctx ends, which is no error.
func (m *Main) watchStatus(ctx context.Context, client *status.Client, q statusQuery, filter view.Filter) error {
	var screen screen = stream{m.Stdout}
	if file, ok := m.terminal(); ok && q.form == "table" {
		screen = newCanvas(file)
	}
	defer screen.close()
	tick := time.NewTicker(q.every)
	defer tick.Stop()
	for {
		text, err := m.frame(ctx, client, q, filter)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			err = errors.New(message(err)) // it may be back soon
			if err := screen.show(err.Error() + "\n"); err != nil {
				return err
			}
		default:
			if err := screen.show(text); err != nil {
				return err // the reader has gone
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// terminal is standard output, where it is a terminal that can be drawn on.
func (m *Main) terminal() (*os.File, bool) {
	file, ok := m.Stdout.(*os.File)
	return file, ok && canDraw(file) && m.Getenv("TERM") != "dumb"
}
