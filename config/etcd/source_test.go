package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestSource_listsAndWatches(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))
	s.put(sliceKey("web-1"), aSlice("web-1", "web", "10.10.0.1"))
	s.put("/registry/pods/default/web", "of no concern")
	s.put("/registry/services/special/default/web", "nor this")
	f := s.source()
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 of web [10.10.0.1]")
	s.put(serviceKey("db"), aService("db", "10.96.0.2"))
	s.put(endpointsKey("db"), someEndpoints("db", "10.10.0.2"))
	f.shows(t, "Service default/db 10.96.0.2", "Service default/web 10.96.0.1",
		"Endpoints default/db 10.10.0.2", "EndpointSlice default/web-1 of web [10.10.0.1]")
	s.put(serviceKey("web"), aService("web", "10.96.0.3"))
	f.shows(t, "Service default/db 10.96.0.2", "Service default/web 10.96.0.3",
		"Endpoints default/db 10.10.0.2", "EndpointSlice default/web-1 of web [10.10.0.1]")

	// Deletes of the three kinds are told apart.
	s.remove(serviceKey("db"))
	f.shows(t, "Service default/web 10.96.0.3", "Endpoints default/db 10.10.0.2", "EndpointSlice default/web-1 of web [10.10.0.1]")
	s.remove(sliceKey("web-1"))
	f.shows(t, "Service default/web 10.96.0.3", "Endpoints default/db 10.10.0.2")
	s.remove(endpointsKey("db"))
	f.shows(t, "Service default/web 10.96.0.3")
	f.recovers(t)
}

// TestSource_badValues: each names its key, and takes no other along.
func TestSource_badValues(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))
	s.put(serviceKey("db"), "k8s:enc:aescbc:v1:key1:")
	f := s.source()
	encrypted := "ValueEncrypted: etcd key " + serviceKey("db") + ": Service default/db: the API server has encrypted the value" +
		" (read from the API server (--kubeconfig), or leave services out of its --encryption-provider-config and write them anew)"
	f.shows(t, "Service default/web 10.96.0.1", encrypted)
	s.put(serviceKey("web"), aService("other", "10.96.0.2"))
	s.put(serviceKey("new"), aService("new", "10.96.0.3"))
	wrong := "WrongObject: etcd key " + serviceKey("web") + ": Service default/web: the value is Service default/other" +
		" (write it to the key that has its namespace and name; until then the object's last good state stays in use)"
	f.shows(t, "Service default/new 10.96.0.3", "Service default/web 10.96.0.1", encrypted, wrong)
	s.kill() // nor does a list lose the last good state
	f.fails(t, "connection refused")
	s.start()
	f.recovers(t)
	f.shows(t, "Service default/new 10.96.0.3", "Service default/web 10.96.0.1", encrypted, wrong)
	s.remove(serviceKey("db"))
	s.put(serviceKey("web"), aService("web", "10.96.0.4"))
	f.shows(t, "Service default/new 10.96.0.3", "Service default/web 10.96.0.4")
}

// TestSource_whatKubernetesStores is protobuf.
func TestSource_whatKubernetesStores(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	service, slice, endpoints := objects()
	s.put(serviceKey("web"), string(stored(t, runtime.ContentTypeProtobuf, corev1.SchemeGroupVersion, service)))
	s.put(sliceKey("web-1"), string(stored(t, runtime.ContentTypeProtobuf, discoveryv1.SchemeGroupVersion, slice)))
	f := s.source()
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 of web [10.10.0.1]")
	s.remove(sliceKey("web-1"))
	s.put(endpointsKey("web"), string(stored(t, runtime.ContentTypeProtobuf, corev1.SchemeGroupVersion, endpoints)))
	f.shows(t, "Service default/web 10.96.0.1", "Endpoints default/web 10.10.0.1")
}

func TestSource_anotherPrefix(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.put("/k8s/services/specs/default/web", aService("web", "10.96.0.1"))
	s.put(serviceKey("db"), aService("db", "10.96.0.2"))
	s.source(func(o *Options) { o.Prefix = "k8s/" }).shows(t, "Service default/web 10.96.0.1")
}

// TestSource_emptyEtcd delivers that there is nothing.
func TestSource_emptyEtcd(t *testing.T) {
	t.Parallel()
	f := startServer(t).source()
	f.recovers(t)
	f.shows(t, "")
}

// TestSource_quietEtcd is found to be up to date though nothing is written.
func TestSource_quietEtcd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	f := s.source()
	f.recovers(t)
	s.put("/registry/leases/a", "x") // nothing that is watched
	f.recovers(t)
	f.recovers(t)
	require.Empty(t, f.messages())
}
