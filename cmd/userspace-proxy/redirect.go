package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/node"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// redirection is how clients come from portals to listeners on this machine.
type redirection struct {
	way    string // redirectNFTables or redirectNone
	listen map[service.Family]netip.Addr
	rules  proxy.Rules // nil: listeners stand on the portals
	mark   uint32
}

// way is --redirect with auto decided.
func (o *options) way() string {
	if o.redirect == redirectAuto {
		if runtime.GOOS != "linux" {
			return redirectNone
		}
		return redirectNFTables
	}
	return o.redirect
}

// ownAddresses are the listening addresses that the proxy makes itself: those
// for which --bind-address gives no other.
func (o *options) ownAddresses() map[service.Family]netip.Addr {
	own := listenaddr.Default()
	for f := range o.meant.listen {
		delete(own, f)
	}
	return own
}

// nftablesConfig is for listening on given addresses.
func (o *options) nftablesConfig(listen map[service.Family]netip.Addr) nftables.Config {
	return nftables.Config{
		Listen:       listen,
		SharedListen: len(o.meant.listen) > 0,
		Ports:        nftables.PortRange(o.meant.ports),
		Mark:         o.meant.mark,
	}
}

// chooseRedirect finds out what works here, makes the listening addresses and
// says in one line what was chosen and why.
func (o *options) chooseRedirect(ctx context.Context, facts node.Facts, log logrus.FieldLogger) (redirection, error) {
	if o.way() == redirectNone {
		if len(o.meant.listen) > 0 {
			log.Warn("--bind-address has no effect with --redirect=none: listeners stand on the Services' own addresses")
		}
		log.Infof("redirect: none (--redirect=%s): listening on the Services' own addresses, where this machine has them", o.redirect)
		return redirection{way: redirectNone}, nil
	}
	for _, a := range o.meant.listen {
		if !slices.Contains(facts.Local, a) {
			return redirection{}, usage(fmt.Errorf("--bind-address: %s is not an address of this node", a))
		}
	}
	listen := listenaddr.Default()
	maps.Copy(listen, o.meant.listen)
	report, err := nftables.Probe(ctx, o.nftablesConfig(listen))
	if err != nil {
		return redirection{}, fmt.Errorf("--redirect=%s: %w", o.redirect, noRedirect(err))
	}
	lacking := func(f service.Family, _ netip.Addr) bool { return !slices.Contains(report.Families, f) }
	own := o.ownAddresses()
	maps.DeleteFunc(own, lacking)
	maps.DeleteFunc(listen, lacking)
	made, err := listenaddr.Ensure(own)
	if err != nil {
		return redirection{}, fmt.Errorf("--redirect=%s: %w", o.redirect, err)
	}
	for f, why := range made.Missing {
		delete(listen, f)
		log.Infof("%s is not served: %s", f, why)
	}
	for f, why := range report.Missing {
		log.WithError(why).Infof("%s is not served", f)
	}
	if len(listen) == 0 {
		return redirection{}, fmt.Errorf("--redirect=%s: rules and listening addresses work in no address family; use --redirect=none", o.redirect)
	}
	rules, err := nftables.New(o.nftablesConfig(listen))
	if err != nil {
		return redirection{}, fmt.Errorf("--redirect=%s: %w", o.redirect, err)
	}
	log.Infof("redirect: nftables (--redirect=%s; %s works here), listeners on %s", o.redirect, report.Version, inOrder(listen))
	return redirection{
		way: redirectNFTables, listen: listen, mark: o.meant.mark,
		rules: &addressedRules{rules: rules, own: made.Listen},
	}, nil
}

// addressedRules are rules that lead to addresses which the proxy made itself
// and others may remove: a network manager that resets lo, say.
type addressedRules struct {
	rules proxy.Rules
	own   map[service.Family]netip.Addr
}

// Sync makes sure of the addresses, then of the rules.
func (r *addressedRules) Sync(ctx context.Context, redirects []service.Redirect) error {
	if _, err := listenaddr.Ensure(r.own); err != nil {
		return err
	}
	return r.rules.Sync(ctx, redirects)
}

// noRedirect is why rules do not work, once where it is so in both families.
func noRedirect(err error) error {
	for _, one := range []error{nftables.ErrNoNFT, nftables.ErrNoRight, nftables.ErrUnsupported} {
		if errors.Is(err, one) {
			return one
		}
	}
	return fmt.Errorf("%w\nuse --redirect=none to do without rules", err)
}

// inOrder are the addresses of both families, IPv4 first.
func inOrder(addrs map[service.Family]netip.Addr) string {
	var all []string
	for _, f := range service.Families() {
		if a, ok := addrs[f]; ok {
			all = append(all, a.String())
		}
	}
	return strings.Join(all, " and ")
}
