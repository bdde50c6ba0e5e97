package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/config/file"
	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/node"
)

func (m *Main) newPlan() *cobra.Command {
	o := new(options)
	var output string
	c := &cobra.Command{
		Use:   "plan --file PATH [flags]",
		Short: "Show what would be served, and the exact rules; touches nothing",
		Long: `Shows what "userspace-proxy run" with the same flags would serve on this node:
the ports with their portals, listeners and endpoints, what stands in the way,
and with -o nft or -o iptables the exact rules. It changes nothing and needs no
rights.

Listeners have the ports that a start from nothing gives them; a run skips those
that are in use.`,
		Example: `  userspace-proxy plan --file services.yaml
  userspace-proxy plan --file services.yaml -o nft
  userspace-proxy plan --file services.yaml -o json --nodeport-addresses all`,
		DisableFlagsInUseLine: true,
		Args:                  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var faults checks
			if len(o.files) == 0 {
				faults.add(errors.New(noSource))
			}
			o.complete(&faults)
			write, known := outputs()[output]
			if !known {
				faults.check("--output", fmt.Errorf("must be text, json, nft or iptables, got %q", output))
			}
			if err := faults.err(); err != nil {
				return err
			}
			p, err := m.plan(c.Context(), o)
			if err != nil {
				return err
			}
			return write(p, c.OutOrStdout())
		},
	}
	fs := c.Flags()
	o.addSourceFlags(fs)
	o.addNodeFlags(fs)
	o.addRedirectFlags(fs)
	addOutputFlags(fs, &output)
	return c
}

// outputs are the forms that a plan can be written in.
func outputs() map[string]func(*plan, io.Writer) error {
	return map[string]func(*plan, io.Writer) error{
		"text":     (*plan).writeText,
		"json":     (*plan).writeJSON,
		"nft":      func(p *plan, to io.Writer) error { return p.writeRules(redirectNFTables, to) },
		"iptables": func(p *plan, to io.Writer) error { return p.writeRules(redirectIPTables, to) },
	}
}

// plan resolves what the files say for this node.
func (m *Main) plan(ctx context.Context, o *options) (*plan, error) {
	facts, err := node.Read(o.nodeOptions())
	if err != nil {
		return nil, usage(err)
	}
	return m.planOn(ctx, o, facts)
}

// planOn does so for a node of which these are the facts.
func (m *Main) planOn(ctx context.Context, o *options, facts node.Facts) (*plan, error) {
	snapshot, err := m.load(ctx, o, facts)
	if err != nil {
		return nil, err
	}
	r := o.plannedRedirection()
	return newPlan(o, r, config.Resolve(snapshot, o.nodeConfig(facts, r))), nil
}

// plannedRedirection is how a run would lead clients, as far as that can be told
// without trying.
func (o *options) plannedRedirection() redirection {
	r := redirection{way: o.way()}
	if r.way != redirectNone {
		r.listen = listenaddr.Default()
		maps.Copy(r.listen, o.meant.listen)
	}
	return r
}

// load reads the files once and merges them as a run does.
func (m *Main) load(ctx context.Context, o *options, facts node.Facts) (config.Snapshot, error) {
	services, endpoints, problems, err := file.Load(file.Options{
		Paths: o.files, Stdin: m.Stdin, NodeAddr: firstOf(facts.Primary),
	})
	if err != nil {
		return config.Snapshot{}, usage(err)
	}
	c := config.New(silent(), config.Options{})
	to := c.AddSource(sourceFile)
	merged := make(chan config.Snapshot, 1)
	c.Register(config.ServiceKind|config.EndpointsKind, config.HandlerFunc(func(s config.Snapshot) { merged <- s }))

	var snapshot config.Snapshot
	err = together(ctx, c.Run, func(ctx context.Context) error {
		ok := to.Send(ctx, []config.EndpointsUpdate{endpoints}, []config.ServiceUpdate{services}) &&
			to.Tell(ctx, config.SourceStatus{Problems: problems})
		if !ok {
			return ctx.Err()
		}
		select {
		case snapshot = <-merged:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err == nil {
		err = ctx.Err() // which is no error to together, and no Services to anybody who reads a plan
	}
	snapshot.Problems = problems
	return snapshot, err
}
