package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/explain"
	"github.com/userspace-proxy/userspace-proxy/internal/node"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/internal/transparent"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func (m *Main) newExplain() *cobra.Command {
	o := new(options)
	var address, from, form string
	c := &cobra.Command{
		Use:   "explain PROTOCOL ADDRESS:PORT [flags]",
		Short: "Follow one packet: rule, listener, affinity, endpoint, and why",
		Long: `Tells in numbered steps what becomes of a packet: which portal it is for, which
rule leads it to which listener, and which endpoint it would come to and why; or
that it would be refused, dropped, or is not for this proxy, and what would
change that. It sends nothing.

A running proxy is asked, at --address. With --file the answer is what a run
with the same flags would do, before anybody has connected.

The exit code is 0 where the packet would be served, 3 where refused, 4 where
dropped, and 5 where it is not for this proxy; 1 where nobody could tell, and 2
for wrong usage.`,
		Example: `  userspace-proxy explain tcp 10.96.0.10:80
  userspace-proxy explain udp '[fd00:10:96::53]:53' --from fd00:10:10:2::7
  userspace-proxy explain tcp 192.0.2.2:30080 --file services.yaml`,
		DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &usageError{err: fmt.Errorf("give a protocol and an address with a port, as in: %s tcp 10.96.0.10:80", c.CommandPath()), hint: seeHelp(c)}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			q, err := explain.Parse(args[0], args[1], from)
			if err != nil {
				return usage(err)
			}
			write, err := m.answerWriter(form)
			if err != nil {
				return err
			}
			if err := oneWorld(c.Flags(), len(o.files) > 0); err != nil {
				return err
			}
			var a explain.Answer
			if len(o.files) > 0 {
				a, err = m.explainFiles(c.Context(), o, q)
			} else {
				a, err = askAt(c.Context(), address, func(ctx context.Context, from *status.Client) (explain.Answer, error) { return from.Explain(ctx, q) })
			}
			if err != nil {
				return err
			}
			if err := write(a, c.OutOrStdout()); err != nil {
				return err
			}
			return verdictError(a.Verdict)
		},
	}
	grouped(c.Flags(), groupAsk, func(fs *pflag.FlagSet) {
		fs.StringVar(&from, "from", "", "the `address` of the client: it matters where there is affinity")
	})
	addAddressFlag(c.Flags(), &address)
	o.addSourceFlags(c.Flags())
	o.addNodeFlags(c.Flags())
	o.addRedirectFlags(c.Flags())
	addFormFlag(c.Flags(), &form)
	return c
}

// oneWorld refuses flags that say what a run would do where a running proxy is
// asked, which has its own, and the other way round.
func oneWorld(flags *pflag.FlagSet, files bool) error {
	var err error
	flags.Visit(func(f *pflag.Flag) {
		switch group := f.Annotations[groupAnnotation][0]; {
		case err != nil:
		case files && f.Name == "address":
			err = errors.New("--address asks a running proxy, and --file does not: give one of them")
		case !files && (group == groupSources || group == groupNode || group == groupRedirect):
			err = fmt.Errorf("--%s says what a run would do, and a running proxy is asked: give --file too, or leave it out", f.Name)
		}
	})
	return usage(err)
}

// askAt asks the proxy whose status server is at an address.
func askAt[T any](ctx context.Context, address string, ask func(context.Context, *status.Client) (T, error)) (T, error) {
	client, err := status.NewClient(address)
	if err != nil {
		var none T
		return none, usage(fmt.Errorf("--address: %w", err))
	}
	defer client.Close()
	return ask(ctx, client)
}

// answerWriter is how an answer is printed in a form.
func (m *Main) answerWriter(form string) (func(explain.Answer, io.Writer) error, error) {
	switch form {
	case "text":
		return func(a explain.Answer, to io.Writer) error {
			_, err := io.WriteString(to, a.Text(m.style()))
			return err // the reader has gone
		}, nil
	case "json":
		return func(a explain.Answer, to io.Writer) error { return writeIndented(to, a) }, nil
	}
	return nil, usage(fmt.Errorf("--output: must be text or json, got %q", form))
}

// writeIndented writes JSON as /statusz has it.
func writeIndented(to io.Writer, v any) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v) // the reader has gone
}

// codeError ends the program with a code and says nothing: all is said.
type codeError int

func (e codeError) Error() string { return "" }

func verdictError(v explain.Verdict) error {
	switch v {
	case explain.Refused:
		return codeError(exitRefused)
	case explain.Dropped:
		return codeError(exitDropped)
	case explain.Elsewhere:
		return codeError(exitElsewhere)
	}
	return nil
}

// explainFiles answers from what files say.
func (m *Main) explainFiles(ctx context.Context, o *options, q explain.Question) (explain.Answer, error) {
	var faults checks
	o.complete(&faults)
	if err := faults.err(); err != nil {
		return explain.Answer{}, err
	}
	facts, err := node.Read(o.nodeOptions())
	if err != nil {
		return explain.Answer{}, usage(err)
	}
	return m.explainFilesOn(ctx, o, facts, q)
}

// explainFilesOn does so for a node of which these are the facts.
func (m *Main) explainFilesOn(ctx context.Context, o *options, facts node.Facts, q explain.Question) (explain.Answer, error) {
	snapshot, err := m.load(ctx, o, facts)
	if err != nil {
		return explain.Answer{}, err
	}
	r := o.plannedRedirection()
	on := o.nodeConfig(facts, r)
	resolution := config.Resolve(snapshot, on)
	w := explain.World{
		Now: time.Now(), Redirect: r.way, Node: on,
		Ports: resolution.Ports, Complete: true, Problems: resolution.Problems,
	}
	w.Prospect = w.FromFile(newPlan(o, r, resolution).statusOf)
	if o.transparent {
		decider, err := transparent.NewDecider(true)
		if err != nil {
			return explain.Answer{}, err
		}
		defer decider.Close()
		decider.Set(knownOf(on, nil), resolution.Ports)
		w.ShowsClient = decider.ShowsClient
	}
	return explain.Explain(q, w), nil
}

// explain answers from what is served now.
func (s *server) explain(q explain.Question) explain.Answer {
	resolution, on := s.translator.told()
	return explain.Explain(q, explain.World{
		Live: true, Now: time.Now(), Redirect: s.redirect.way, Node: on,
		Ports: resolution.Ports, Complete: resolution.Complete,
		Problems: sorted(s.translator.problems(), s.proxier.Status().Problems),
		Prospect: s.proxier.Prospect, ShowsClient: s.redirect.transparency.showsClient(),
		Hits: func(protocol service.Protocol, at netip.AddrPort) (uint64, bool) {
			h, read, err := s.hits.newest()
			return h.portals[hitPortal{at, protocol}], err == nil && !read.IsZero()
		},
	})
}
