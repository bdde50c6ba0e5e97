package main

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
// while, are not. Nor is it that there never was a Node.
func TestNodeWatch(t *testing.T) {
	t.Parallel()
	w := newNodeWatch(nil, nil)
	for _, n := range []*corev1.Node{nil, nodeAt(), nodeAt("192.0.2.1"), nodeAt("192.0.2.1", "192.0.2.2"), nodeAt(), nodeAt("192.0.2.1")} {
		w.heed(n)
		assert.Empty(t, w.over)
	}
	w.heed(nodeAt("192.0.2.3"))
	w.heed(nodeAt("192.0.2.4"))
	assert.EqualError(t, <-w.over, "the addresses of Node n were [192.0.2.1] and are [192.0.2.3]: ending, to be started again with those")
}

func TestNodeWatch_gone(t *testing.T) {
	t.Parallel()
	log, said := logtest.NewNullLogger()
	w := newNodeWatch(nil, log)
	w.heed(nil)
	assert.Empty(t, said.AllEntries(), "it was never there")
	w.heed(nodeAt("192.0.2.1"))
	w.heed(nil)
	w.heed(nil)
	require.Len(t, said.AllEntries(), 1)
	assert.Equal(t, "the Node n is gone from the API server: serving on, not healthy for new clients until there is one", said.LastEntry().Message)
	assert.Empty(t, w.over)
}

// TestNodeWatch_podCIDR: it is waited for, for five minutes and once.
func TestNodeWatch_podCIDR(t *testing.T) {
	t.Parallel()
	o := &options{local: localDetection{mode: detectNodeCIDR}}
	given := nodeAt()
	given.Spec.PodCIDR = "10.244.1.0/24"
	watch := func() (*nodeWatch, *logtest.Hook) {
		log, said := logtest.NewNullLogger()
		w := newNodeWatch(o.nodeLacks(), log)
		assert.Empty(t, w.waiting())
		w.heed(nil)
		assert.Equal(t, "waiting, because --detect-local-mode is NodeCIDR, and no API server has told of the Node of this machine", w.waiting())
		w.heed(nodeAt())
		assert.Equal(t, "waiting, because --detect-local-mode is NodeCIDR, and the Node of this machine has no podCIDR", w.waiting())
		return w, said
	}
	synctest.Test(t, func(t *testing.T) {
		w, said := watch()
		require.Len(t, said.AllEntries(), 1)
		assert.Equal(t, "waiting up to 5m0s before anything of the API server is served: --detect-local-mode is NodeCIDR, and no API server has told of the Node of this machine", said.LastEntry().Message)
		time.Sleep(5*time.Minute - 1)
		synctest.Wait()
		assert.Empty(t, w.over)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.EqualError(t, <-w.over, "--detect-local-mode is NodeCIDR, and the Node of this machine has no podCIDR, after 5m0s: "+
			"have one given to it (by the controller manager's --allocate-node-cidrs), or choose another --detect-local-mode")
	})
	synctest.Test(t, func(t *testing.T) {
		w, _ := watch()
		w.heed(given)
		assert.Empty(t, w.waiting())
		w.heed(nodeAt())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, w.waiting(), "what it loses later is a problem, and no reason to wait")
		assert.Empty(t, w.over)
	})
}

func TestIneligible(t *testing.T) {
	t.Parallel()
	s := &server{nodeWatch: newNodeWatch(nil, nil)}
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
