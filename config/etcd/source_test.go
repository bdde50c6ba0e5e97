package etcd

import (
	"testing"
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
