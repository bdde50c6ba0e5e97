package e2e

import (
	"testing"

	discovery "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/internal/testpki"
)

// TestFaultsOfEtcd: whatever happens to the etcd that is followed, what was
// known stays in use, and what is true afterwards is found out.
func TestFaultsOfEtcd(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	etcd := newEtcd(t, bed.Back, testpki.New(t))
	etcd.ready(t)
	direct := keys{etcd: etcd, prefix: "/registry", encode: asProtobuf}
	r := newRig(t, bed, direct)
	r.begin(t, etcd.flags(t, "proxy")...)

	var kept string
	for _, f := range []fault{
		{name: "killed", do: func(t *testing.T, r *rig) {
			etcd.kill(t)
			r.requireFault(t)
			kept = etcd.keep(t)
			etcd.start(t)
			etcd.ready(t)
		}},
		{name: "compacted", do: func(t *testing.T, r *rig) {
			r.change(t)
			etcd.compact(t)
		}},
		dropped("cut off", etcdPort, func(*testing.T, *rig) {}),
		dropped("cut off until it says so", etcdPort, func(t *testing.T, r *rig) { r.requireFault(t) }),
		dropped("cut off and compacted", etcdPort, func(t *testing.T, _ *rig) { etcd.compact(t) }),
		dropped("cut off and killed", etcdPort, func(t *testing.T, _ *rig) {
			etcd.kill(t)
			etcd.start(t)
			etcd.ready(t)
		}),
		{name: "connections reset", do: func(t *testing.T, r *rig) { refused(t, r.bed, etcdPort) }},
		{name: "older data", do: func(t *testing.T, r *rig) {
			etcd.kill(t)
			etcd.restore(t, kept)
			etcd.start(t)
			etcd.ready(t)
		}},
		{name: "no data", loses: true, do: func(t *testing.T, r *rig) {
			etcd.kill(t)
			etcd.restore(t, "")
			etcd.start(t)
			etcd.ready(t)
			requireNoAnswer(t, r.bed.Client, "10.96.0.200:80")
			r.putSteady(t)
		}},
		hung("hangs", func() *process { return etcd.process }),
		{name: "10,000 updates", do: func(t *testing.T, r *rig) {
			r.burst(t, func(slice *discovery.EndpointSlice) error {
				_, err := etcd.client.Put(t.Context(), direct.slice(slice.Name), string(asProtobuf(t, slice)))
				return err
			})
		}},
	} {
		r.suffer(t, f)
	}
	r.proxy.stop(t)
}
