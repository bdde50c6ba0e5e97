package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// nodePatience is how long the Node may lack what is needed of it, as with
// kube-proxy: whoever gives ranges to Nodes does so after they have come.
const nodePatience = 5 * time.Minute

// nodeWatch is what the proxy makes of its Node in the API server.
type nodeWatch struct {
	lacks func(*corev1.Node) string // what the Node, or nil for none, must still get before anything is served; nil: nothing ever
	log   logrus.FieldLogger

	over    chan error             // capacity 1: why it is to end
	seen    atomic.Bool            // there was a Node
	lacking atomic.Pointer[string] // what is waited for; nil: nothing, or it is not known yet

	// What follows is heed's alone.
	name  string       // empty while there is none
	addrs []netip.Addr // when they were first known
	late  *time.Timer  // runs while something is waited for
	ready bool         // nothing was lacking once
}

func newNodeWatch(lacks func(*corev1.Node) string, log logrus.FieldLogger) *nodeWatch {
	return &nodeWatch{lacks: lacks, log: log, over: make(chan error, 1), ready: lacks == nil}
}

// heed takes in the Node as it is now; nil: it is gone, or was never there. Calls
// come one at a time.
func (w *nodeWatch) heed(n *corev1.Node) {
	w.await(n)
	if n == nil {
		if w.name != "" {
			w.log.Warnf("the Node %s is gone from the API server: serving on, not healthy for new clients until there is one", w.name)
			w.name = ""
		}
		return
	}
	w.name = n.Name
	w.seen.Store(true)
	now := addrsOf(n)
	if len(w.addrs) == 0 {
		w.addrs = now
		return
	}
	if len(now) > 0 && !slices.Equal(now, w.addrs) {
		w.end(fmt.Errorf("the addresses of Node %s were %v and are %v: ending, to be started again with those", n.Name, w.addrs, now))
	}
}

// await waits until the Node has what is needed, but not for ever.
func (w *nodeWatch) await(n *corev1.Node) {
	if w.ready {
		return
	}
	lacking := w.lacks(n)
	if lacking == "" {
		w.ready = true
		w.lacking.Store(nil)
		if w.late != nil {
			w.late.Stop()
		}
		return
	}
	w.lacking.Store(&lacking)
	if w.late != nil {
		return
	}
	w.log.Infof("waiting up to %v before anything of the API server is served: %s", nodePatience, lacking)
	w.late = time.AfterFunc(nodePatience, func() {
		if lacking := w.lacking.Load(); lacking != nil {
			w.end(fmt.Errorf("%s, after %v: have one given to it (by the controller manager's --allocate-node-cidrs), or choose another --detect-local-mode", *lacking, nodePatience))
		}
	})
}

// waiting is what is waited for; empty for nothing.
func (w *nodeWatch) waiting() string {
	if lacking := w.lacking.Load(); lacking != nil {
		return "waiting, because " + *lacking
	}
	return ""
}

// end has the proxy end, for a reason.
func (w *nodeWatch) end(why error) {
	select {
	case w.over <- why:
	default: // it ends already
	}
}

// watchNode ends, and so has the program end, when the Node has other addresses
// than before, or does not get what it needs, as kube-proxy does. A Node that is
// gone ends nothing: an API server may have lost its data, on all nodes at once,
// and the rules would lead to listeners that are no more.
func (s *server) watchNode(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.nodeWatch.over:
		s.stopping.Store(true)
		return err
	}
}

// addrsOf are a Node's own addresses, as a kubelet tells them to pods: internal
// ones before others, the first of all, and the first of the other family.
func addrsOf(n *corev1.Node) []netip.Addr {
	if n == nil {
		return nil
	}
	var own []netip.Addr
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil {
				continue
			}
			addr = addr.Unmap()
			if len(own) == 0 || len(own) == 1 && service.FamilyOf(own[0]) != service.FamilyOf(addr) {
				own = append(own, addr)
			}
		}
	}
	return own
}

// taintToBeDeleted is what the cluster autoscaler puts on a Node that it is
// about to remove.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// ineligible is why load balancers had better send new clients to other nodes
// although this proxy does its work; empty where there is no reason.
func (s *server) ineligible() string {
	n := s.apiNode.Load()
	switch {
	case n == nil && s.nodeWatch.seen.Load():
		return "the Node is gone"
	case n == nil:
		return ""
	case n.DeletionTimestamp != nil:
		return "the Node is being deleted"
	case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintToBeDeleted }):
		return "the cluster autoscaler is about to remove the Node"
	}
	return ""
}
