package main

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/transparent"
	"github.com/userspace-proxy/userspace-proxy/internal/watch"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// transparency is what --transparent needs beside rules that mark replies: policy
// routing that delivers what is marked, rules for bridges, and who decides which
// dials are made from the client's address.
type transparency struct {
	routing transparent.Routing
	bridges *nftables.Bridges // nil: they do not work here
	decider *transparent.Decider
}

// checkTransparent reads --transparent-mark and says what stands in the way.
func (o *options) checkTransparent(c *checks) {
	mark, err := parseMark(o.transparentMark)
	if err == nil && mark&o.meant.mark != 0 {
		err = errors.New("must have no bit in common with --mark")
	}
	c.check("--transparent-mark", err)
	switch {
	case !o.transparent:
		return
	case runtime.GOOS != "linux":
		c.check("--transparent", errors.New("only Linux can connect from a client's address: leave it out here"))
	case o.way() == redirectNone:
		c.check("--transparent", errors.New("needs rules, which lead the replies here: give --redirect=nftables or iptables, or leave it out"))
	}
	o.meant.replies = mark
}

// newTransparency makes what is needed on this machine; nil without --transparent.
func (o *options) newTransparency(ctx context.Context, listen addresses, log logrus.FieldLogger) (*transparency, error) {
	if !o.transparent {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	t := &transparency{routing: transparent.Routing{
		Reply: o.meant.replies, Own: o.meant.mark, Families: slices.Sorted(maps.Keys(listen)),
	}}
	err := t.routing.Ensure()
	if err != nil {
		return nil, err
	}
	t.bridges, err = nftables.NewBridges(ctx, nftables.BridgesConfig{Marks: o.meant.replies | o.meant.mark, Idle: bridgedIdle(o.tcpKeepalive)})
	if err != nil {
		log.WithError(err).Warn("--transparent: replies cannot be led here where client and endpoint are ports of one bridge: such endpoints see this node's address")
		t.bridges = nil
	}
	if t.decider, err = transparent.NewDecider(t.bridges != nil); err != nil {
		return nil, err
	}
	log.Infof("transparent: endpoints see the client's address where their replies come by this node (marks %#x and %#x, routing table %d)", o.meant.mark, o.meant.replies, transparent.Table)
	return t, nil
}

// bridgedIdle is how long rules for bridges remember a connection without a
// packet: longer than keepalive probes are apart, and where there are none a day.
func bridgedIdle(keepalive time.Duration) time.Duration {
	if keepalive == 0 {
		return 24 * time.Hour
	}
	return max(3*keepalive, 5*time.Minute)
}

// forget says that nothing is known of what is on the node.
func (t *transparency) forget() {
	if t != nil && t.bridges != nil {
		t.bridges.Forget()
	}
}

// sync makes sure of all that may have been removed.
func (t *transparency) sync(ctx context.Context) error {
	if err := t.routing.Ensure(); err != nil {
		return err
	}
	if t.bridges == nil {
		return nil
	}
	return t.bridges.Sync(ctx)
}

// check says whether it was.
func (t *transparency) check(ctx context.Context) error {
	err := t.routing.Check()
	if t.bridges != nil {
		err = errors.Join(err, t.bridges.Check(ctx))
	}
	return err
}

// watch looks once a second, which costs some microseconds, until ctx ends.
func (t *transparency) watch(ctx context.Context, period time.Duration, damaged func(error)) error {
	return watch.Rules{
		Changed: func() bool { return true }, Check: t.check, CanaryPeriod: time.Second, CheckPeriod: period,
	}.Watch(ctx, damaged)
}

// close gives back what it has opened; what it made stays, as rules do.
func (t *transparency) close() {
	if t != nil {
		t.decider.Close()
	}
}

// knownOf is what there is to know of this node. Pods are told as for traffic
// policies, and where an API server has told of the Node by its podCIDRs.
func knownOf(on config.Node, n *corev1.Node) transparent.Node {
	pods := on.LocalPods
	for _, s := range podCIDRsOf(n) {
		if r, err := podRange(s); err == nil {
			pods.Ranges = append(slices.Clone(pods.Ranges), r)
		}
	}
	pods.Ranges = service.Disjoint(pods.Ranges)
	return transparent.Node{Name: on.Name, Pods: pods, Primary: slices.Collect(maps.Values(on.Primary))}
}

// showsClient is what the data path asks; nil without --transparent.
func (t *transparency) showsClient() func(client, endpoint netip.Addr) bool {
	if t == nil {
		return nil
	}
	return t.decider.ShowsClient
}
