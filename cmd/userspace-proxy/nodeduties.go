package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// nodeWatch is what the proxy makes of its Node in the API server.
type nodeWatch struct {
	addrs []netip.Addr // the Node's, when they were first known; heed's alone
	moved chan error   // capacity 1: they are others now
	seen  atomic.Bool  // there was a Node
}

func newNodeWatch() *nodeWatch { return &nodeWatch{moved: make(chan error, 1)} }

// heed takes in the Node as it is now; nil: it is gone. Calls come one at a time.
func (w *nodeWatch) heed(n *corev1.Node) {
	if n == nil {
		return
	}
	w.seen.Store(true)
	now := addrsOf(n)
	if len(w.addrs) == 0 {
		w.addrs = now
		return
	}
	if len(now) > 0 && !slices.Equal(now, w.addrs) {
		select {
		case w.moved <- fmt.Errorf("the addresses of Node %s were %v and are %v: ending, to be started again with those", n.Name, w.addrs, now):
		default: // it ends already
		}
	}
}

// watchNode ends, and so has the program end, when the Node has other addresses
// than before, as kube-proxy does.
func (s *server) watchNode(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.nodeWatch.moved:
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
