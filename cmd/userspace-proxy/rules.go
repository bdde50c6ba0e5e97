package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/iptables"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// ruleKind is one kind of rules that lead portals to listeners.
type ruleKind struct {
	name string // of --redirect
	// probe finds out whether the rules work here, by making and removing some.
	probe func(ctx context.Context, listen addresses) (found, error)
	// render is the rules, for people and for whoever applies them by hand.
	render func(listen addresses, redirects []service.Redirect) string
	// cleanup removes what any version may have left, and nothing else.
	cleanup func(context.Context) error
	absent  error   // of probe and cleanup, where the program is not installed
	plain   []error // of probe, that say all there is to say
}

// addresses are where listeners stand, by family.
type addresses = map[service.Family]netip.Addr

// found is what a probe found.
type found struct {
	version  string
	families []service.Family
	missing  map[service.Family]error // why rules do not work in the others
	untried  error                    // why it could not be tried now and is taken to work; nil: it was
	rules    func(listen addresses) (madeRules, error)
}

// ruleKinds are those that there are, in the order in which auto tries them.
func (o *options) ruleKinds() []ruleKind { return []ruleKind{o.nftables(), o.iptables()} }

// rulesOf is the kind of that name. --redirect=auto and none have none.
func (o *options) rulesOf(name string) (ruleKind, bool) {
	for _, k := range o.ruleKinds() {
		if k.name == name {
			return k, true
		}
	}
	return ruleKind{}, false
}

func (o *options) nftables() ruleKind {
	c := func(listen addresses) nftables.Config {
		return nftables.Config{
			Listen: listen, SharedListen: len(o.meant.listen) > 0,
			Ports: o.meant.ports, Mark: o.meant.mark, Replies: o.meant.replies, CheckPeriod: o.syncPeriod, LocalPods: o.meant.localPods,
		}
	}
	return ruleKind{
		name: redirectNFTables,
		probe: func(ctx context.Context, listen addresses) (found, error) {
			r, err := nftables.Probe(ctx, c(listen))
			if errors.Is(err, nftables.ErrNoNFT) {
				err = nftables.ErrNoNFT
			}
			return found{
				version: r.Version, families: r.Families, missing: r.Missing,
				rules: func(listen addresses) (madeRules, error) { return nftables.New(c(listen)) },
			}, err
		},
		render: func(listen addresses, redirects []service.Redirect) string {
			return nftables.Render(c(listen), redirects)
		},
		cleanup: nftables.Cleanup,
		absent:  nftables.ErrNoNFT,
		plain:   []error{nftables.ErrNoRight, nftables.ErrNoTables, nftables.ErrUnsupported, nftables.ErrNoSockets},
	}
}

func (o *options) iptables() ruleKind {
	c := func(k iptables.Kind, listen addresses) iptables.Config {
		return iptables.Config{
			Kind: k, Listen: listen, SharedListen: len(o.meant.listen) > 0,
			Ports: o.meant.ports, Mark: o.meant.mark, Replies: o.meant.replies, CheckPeriod: o.syncPeriod, LocalPods: o.meant.localPods,
		}
	}
	return ruleKind{
		name: redirectIPTables,
		probe: func(ctx context.Context, listen addresses) (found, error) {
			r, err := iptables.Probe(ctx, c(iptables.System, listen))
			if errors.Is(err, iptables.ErrNoIPTables) {
				err = fmt.Errorf("iptables %w", iptables.ErrNoIPTables) // once, not for each family and command
			}
			return found{
				version: r.Version, families: r.Families, missing: r.Missing, untried: r.Untried,
				rules: func(listen addresses) (madeRules, error) { return iptables.New(c(r.Kind, listen)) },
			}, err
		},
		render: func(listen addresses, redirects []service.Redirect) string {
			var all strings.Builder
			for _, f := range service.Families() {
				if rules := iptables.Render(c(iptables.System, listen), f, redirects); rules != "" {
					fmt.Fprintf(&all, "# %s, for %s-restore --noflush:\n%s", f, iptables.System.Command(f), rules)
				}
			}
			return all.String()
		},
		cleanup: iptables.Cleanup,
		absent:  iptables.ErrNoIPTables,
		plain:   []error{iptables.ErrNoRight, iptables.ErrUnsupported},
	}
}

// why is the reason for which a kind does not work, once where it is the same
// in both families.
func (k ruleKind) why(err error) error {
	for _, one := range k.plain {
		if errors.Is(err, one) {
			return one
		}
	}
	return err
}

// advise adds what to do to an error that does not say.
func (k ruleKind) advise(err error) error {
	for _, one := range append(k.plain, k.absent) {
		if errors.Is(err, one) {
			return err
		}
	}
	return fmt.Errorf("%w\nuse --redirect=none to do without rules", err)
}
