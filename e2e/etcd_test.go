package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestEtcdOfAnAPIServer: the proxy reads what an API server has stored, and
// goes on to follow it when there is no API server any more.
func TestEtcdOfAnAPIServer(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed)
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b", "c")
	udp := serveNamed(t, bed.Back, "udp", 8080, "a", "b", "c")
	with := func(i, j int) object {
		return changing(map[string][]string{"stream": tcp[2*i : 2*j], "datagram": udp[2*i : 2*j]})
	}
	cp.put(t, with(0, 1))
	p := startFrom(t, bed.Node, append(cp.etcd.flags(t, "proxy"), "--min-sync-period=10ms")...)
	requireAnswersEverywhere(t, bed, "a")
	assert.Empty(t, p.problems(t), "of all the other things that an API server has stored")

	cp.put(t, with(0, 2)) // by the API
	requireAnswersEverywhere(t, bed, "a", "b")
	cp.killAPI(t)
	requireAnswersEverywhere(t, bed, "a", "b")

	for name, encode := range map[string]func(*testing.T, runtime.Object) []byte{"protobuf": asProtobuf, "JSON": asJSON, "YAML": asYAML} {
		t.Run(name, func(t *testing.T) {
			direct := keys{etcd: cp.etcd, prefix: "/registry", encode: encode}
			direct.put(t, with(1, 3))
			requireAnswersEverywhere(t, bed, "b", "c")
			direct.put(t, with(2, 3))
			requireAnswersEverywhere(t, bed, "c")
			other := object{name: "other", clusterIPs: []string{"10.96.0.20"}, ports: []port{{"stream", service.TCP, 80, 0}},
				endpoints: map[string][]string{"stream": tcp[:2]}}
			direct.put(t, other)
			requireAnswers(t, bed.Client, target{"tcp", "10.96.0.20:80"}, "a")
			direct.remove(t, "other")
			requireNoAnswer(t, bed.Client, "10.96.0.20:80")
			requireAnswersEverywhere(t, bed, "c")
			direct.remove(t, "web")
			requireNoAnswer(t, bed.Client, "10.96.0.10:80")
			direct.put(t, with(0, 1))
			requireAnswersEverywhere(t, bed, "a")
		})
	}

	keys{etcd: cp.etcd, prefix: "/registry", encode: asProtobuf}.put(t, with(1, 2))
	requireAnswersEverywhere(t, bed, "b")
	cp.startAPI(t) // which finds what the test has written
	cp.ready(t)
	assert.Equal(t, "10.96.0.10", cp.get(t, "web").Spec.ClusterIP)
	cp.put(t, with(2, 3))
	requireAnswersEverywhere(t, bed, "c")
	p.stop(t)
}
