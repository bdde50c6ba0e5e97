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
	"github.com/userspace-proxy/userspace-proxy/internal/transparent"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// redirection is how clients come from portals to listeners on this machine.
type redirection struct {
	way    string // redirectNFTables, redirectIPTables or redirectNone
	listen addresses
	rules  proxy.Rules                         // nil: listeners stand on the portals
	watch  watcher                             // nil: rules are not watched
	hits   func(context.Context) (hits, error) // nil: there are no rules
	guards guarded                             // nil: the rules themselves see to it that nothing is kept out
	forget func()                              // what is known of the rules: others have made some; nil: there are none
	own    addresses                           // of listen those that the proxy has made itself
	mark   uint32

	transparency *transparency // nil: every dial is from this node's address
}

// madeRules are rules of one kind: nftables.Runner, iptables.Runner.
type madeRules interface {
	proxy.Rules
	// Forget says that what is in the kernel is not known any more.
	Forget()
}

// watcher looks after rules: nftables.Runner, iptables.Runner.
type watcher interface {
	// Watch calls damaged when somebody else has changed the rules, until ctx ends.
	Watch(ctx context.Context, damaged func(error)) error
}

// guarded are rules whose traffic a firewall may keep out: nftables.Runner.
type guarded interface {
	// KeptOut tells of traffic that a firewall keeps out, as a problem for each
	// family, and reads what has been counted since it was last called.
	KeptOut(ctx context.Context) ([]service.Problem, error)
}

// way is --redirect as far as it can be told without trying: auto counts as the
// first kind of rules that it would try.
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
func (o *options) ownAddresses() addresses {
	own := listenaddr.Default()
	for f := range o.meant.listen {
		delete(own, f)
	}
	return own
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
	if o.transparent {
		if err := transparent.MayDial(); err != nil {
			return redirection{}, fmt.Errorf("--transparent: %w", err)
		}
	}
	for _, a := range o.meant.listen {
		if !slices.Contains(facts.Local, a) {
			return redirection{}, usage(fmt.Errorf("--bind-address: %s is not an address of this node", a))
		}
	}
	listen := listenaddr.Default()
	maps.Copy(listen, o.meant.listen)
	kind, here, others, err := o.chooseRules(ctx, listen)
	if err != nil {
		return redirection{}, fmt.Errorf("--redirect=%s: %w", o.redirect, err)
	}
	lacking := func(f service.Family, _ netip.Addr) bool { return !slices.Contains(here.families, f) }
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
	for f, why := range here.missing {
		log.WithError(why).Infof("%s is not served", f)
	}
	if len(listen) == 0 {
		return redirection{}, fmt.Errorf("--redirect=%s: rules and listening addresses work in no address family; use --redirect=none", o.redirect)
	}
	rules, err := here.rules(listen)
	if err != nil {
		return redirection{}, fmt.Errorf("--redirect=%s: %w", o.redirect, err)
	}
	shown, err := o.newTransparency(ctx, listen, log)
	if err != nil {
		return redirection{}, fmt.Errorf("--transparent: %w", err)
	}
	works := "works here"
	if here.untried != nil {
		log.WithError(here.untried).Warnf("%s cannot be tried now", kind.name)
		works = "is taken to work"
	}
	log.Infof("redirect: %s (--redirect=%s; %s %s%s), listeners on %s", kind.name, o.redirect, here.version, works, others, inOrder(listen))
	watch, _ := rules.(watcher)
	guards, _ := rules.(guarded)
	kinds := o.kindsBut(kind.name)
	all := &nodeRules{rules: rules, own: made.Listen, kinds: kinds, others: kinds, transparency: shown, log: log}
	return redirection{
		way: kind.name, listen: listen, mark: o.meant.mark, watch: watch, hits: hitsOf(rules), guards: guards,
		rules: all, forget: all.reset, own: made.Listen, transparency: shown,
	}, nil
}

// chooseRules is the kind that --redirect names, or the first that works here;
// and, to be told, why those before it do not.
func (o *options) chooseRules(ctx context.Context, listen addresses) (kind ruleKind, here found, others string, err error) {
	candidates := o.ruleKinds()
	if k, ok := o.rulesOf(o.redirect); ok {
		candidates = []ruleKind{k}
	}
	var errs []error
	var all strings.Builder
	for _, k := range candidates {
		here, err := k.probe(ctx, listen)
		if err == nil {
			return k, here, others, nil
		}
		err = k.why(err)
		errs = append(errs, err)
		others += fmt.Sprintf("; %s does not: %v", k.name, err)
		fmt.Fprintf(&all, "\n%s: %v", k.name, err)
	}
	if len(errs) == 1 {
		return ruleKind{}, found{}, "", candidates[0].advise(errs[0])
	}
	return ruleKind{}, found{}, "", fmt.Errorf("no rules work here, use --redirect=none to do without%s", all.String())
}

// kindsBut are the other kinds of rules.
func (o *options) kindsBut(name string) []ruleKind {
	return slices.DeleteFunc(o.ruleKinds(), func(k ruleKind) bool { return k.name == name })
}

// warnOfOldRules tells, where the proxy runs without rules, of those that a run
// with rules may have left: its listening addresses are a trace of them. To look
// for the rules themselves would take rights that this run does without.
func (s *server) warnOfOldRules() {
	if s.redirect.way != redirectNone {
		return
	}
	here, err := s.node()
	if err != nil {
		return // it is read again at each change, and then reported
	}
	left := listenaddr.Default()
	maps.DeleteFunc(left, func(_ service.Family, a netip.Addr) bool { return !slices.Contains(here.Local, a) })
	if len(left) > 0 {
		s.log.Warnf("an earlier run with rules has left %s on this node: its rules may still lead the Services' addresses elsewhere; "+
			"`%s cleanup` removes them", inOrder(left), programName)
	}
}

// nodeRules are rules with what belongs to them on the node: they lead to
// addresses which the proxy made itself and others may remove (a network
// manager that resets lo, say), and no rules of another kind, left by a run
// that is over, may lead elsewhere.
type nodeRules struct {
	rules  madeRules
	own    addresses
	kinds  []ruleKind // all others
	others []ruleKind // those not cleaned up yet
	log    logrus.FieldLogger

	transparency *transparency // nil: there is none, and none may be left
	swept        bool          // none is
}

// SetLocalPods is part of proxy.Rules.
func (r *nodeRules) SetLocalPods(l service.LocalPods) { r.rules.SetLocalPods(l) }

// reset says that nothing is known of what is on the node.
func (r *nodeRules) reset() {
	r.rules.Forget()
	r.transparency.forget()
	r.others, r.swept = r.kinds, false
}

// Sync makes sure of the addresses, then of the rules, then that there are no others.
func (r *nodeRules) Sync(ctx context.Context, redirects []service.Redirect) error {
	if _, err := listenaddr.Ensure(r.own); err != nil {
		return err
	}
	if r.transparency != nil { // first: packets may be marked when it is known where they go
		if err := r.transparency.sync(ctx); err != nil {
			return err
		}
	}
	err := r.rules.Sync(ctx, redirects)
	if service.Applied(err) {
		r.removeOthers(ctx)
		r.sweep(ctx)
	}
	return err
}

// sweep removes once what a run with --transparent has left, where this one is
// without. Nothing is marked any more by now.
func (r *nodeRules) sweep(ctx context.Context) {
	if r.transparency != nil || r.swept || ctx.Err() != nil {
		return
	}
	err := transparent.Remove()
	if bridges := nftables.RemoveBridges(ctx); bridges != nil && !errors.Is(bridges, nftables.ErrNoNFT) {
		err = errors.Join(err, bridges)
	}
	if ctx.Err() != nil {
		return
	}
	r.swept = true
	if err != nil {
		r.log.WithError(err).Warn("cannot find out whether an earlier run with --transparent has left something; `userspace-proxy cleanup` as root removes it")
	}
}

// removeOthers tries to remove the rules of each other kind once. What fails
// here may fail at every try, and the proxy's own rules do not need it.
func (r *nodeRules) removeOthers(ctx context.Context) {
	for ; len(r.others) > 0; r.others = r.others[1:] {
		k := r.others[0]
		err := k.cleanup(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, k.absent) {
			r.log.WithError(err).Warnf("cannot find out whether an earlier run has left %s rules; `userspace-proxy cleanup` as root removes them", k.name)
		}
	}
}

// inOrder are the addresses of both families, IPv4 first.
func inOrder(addrs addresses) string {
	var all []string
	for _, f := range service.Families() {
		if a, ok := addrs[f]; ok {
			all = append(all, a.String())
		}
	}
	return strings.Join(all, " and ")
}
