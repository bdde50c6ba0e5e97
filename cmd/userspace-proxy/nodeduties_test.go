package main

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func nodeAt(addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestAddrsOf(t *testing.T) {
	t.Parallel()
	external := nodeAt("a.example")
	external.Status.Addresses = append(external.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "192.0.2.9"}, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.8"})
	for want, n := range map[string]*corev1.Node{
		"[]":                      nil,
		"[192.0.2.1 2001:db8::1]": nodeAt("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"),
		"[2001:db8::1 192.0.2.1]": nodeAt("2001:db8::1", "192.0.2.1"), // the primary family is IPv6
		"[192.0.2.8]":             external,
	} {
		got := "["
		for i, a := range addrsOf(n) {
			if i > 0 {
				got += " "
			}
			got += a.String()
		}
		assert.Equal(t, want, got+"]")
	}
}

// TestNodeWatch: other addresses are a reason to end; none yet, and none for a
// while, are not.
func TestNodeWatch(t *testing.T) {
	t.Parallel()
	w := newNodeWatch()
	for _, n := range []*corev1.Node{nil, nodeAt(), nodeAt("192.0.2.1"), nodeAt("192.0.2.1", "192.0.2.2"), nodeAt(), nil, nodeAt("192.0.2.1")} {
		w.heed(n)
		assert.Empty(t, w.moved)
	}
	w.heed(nodeAt("192.0.2.3"))
	w.heed(nodeAt("192.0.2.4"))
	assert.EqualError(t, <-w.moved, "the addresses of Node n were [192.0.2.1] and are [192.0.2.3]: ending, to be started again with those")
}

func TestIneligible(t *testing.T) {
	t.Parallel()
	s := &server{nodeWatch: newNodeWatch()}
	assert.Empty(t, s.ineligible(), "where no Node is known")
	n := nodeAt(netip.IPv6Loopback().String())
	s.nodeWatch.heed(n)
	s.apiNode.Store(n)
	assert.Empty(t, s.ineligible())

	tainted := n.DeepCopy()
	tainted.Spec.Taints = []corev1.Taint{{Key: "other"}, {Key: taintToBeDeleted, Effect: corev1.TaintEffectNoSchedule}}
	s.apiNode.Store(tainted)
	assert.Equal(t, "the cluster autoscaler is about to remove the Node", s.ineligible())
	now := metav1.Now()
	n.DeletionTimestamp = &now
	s.apiNode.Store(n)
	assert.Equal(t, "the Node is being deleted", s.ineligible())
	s.apiNode.Store(nil)
	assert.Equal(t, "the Node is gone", s.ineligible())
}
