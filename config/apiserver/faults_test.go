package apiserver

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// often is how often the server is asked in these tests; half of it is time
// enough for an answer, also on a machine that has much to do.
const often = 2 * time.Second

const (
	lost    = "warning the API server cannot be read; what is known of it stays in use, and it is tried again"
	unknown = "warning the API server cannot be read; nothing is known of it yet, and it is tried again"
)

// followed starts a source on a server with a Service, and waits for it.
func followed(t *testing.T) (*server, *feed) {
	t.Helper()
	api := serve(t, aService("web", "10.96.0.1"), aSlice("web-1", "web", "10.1.0.1"), aNode("a"))
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1", Check: often})
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")
	require.Eventually(t, func() bool { return api.openWatches() == 3 }, patience, time.Millisecond)
	return api, f
}

// recovers waits for the end of an outage, and checks that the log was told of
// it once at its beginning and once at its end.
func (f *feed) recovers(t *testing.T, began string) {
	t.Helper()
	f.fails(t, "")
	require.Eventually(t, func() bool { return len(f.logged()) >= 2 }, patience, time.Millisecond)
	logged := f.logged()
	require.Len(t, logged, 2)
	assert.Equal(t, began, logged[0])
	assert.Contains(t, logged[1], "info the API server is read again after ")
	before := f.now().Checked
	require.Eventually(t, func() bool { return f.now().Checked.After(before) }, patience, time.Millisecond)
}

// TestCase36_serverGone: the server goes, and another one comes, restored from
// a backup, whose versions are higher than any that were seen.
func TestCase36_serverGone(t *testing.T) {
	t.Parallel()
	api, f := followed(t)
	api.close()
	f.fails(t, "connection refused")
	checked := f.now().Checked
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")
	assert.False(t, checked.IsZero(), "the age of the state is known")

	api.restore(5000, aService("db", "10.96.0.2"), aNode("b"))
	api.listen(t, api.addr)
	f.shows(t, "Service default/db 10.96.0.2")
	f.recovers(t, lost)
	assert.True(t, f.now().Checked.After(checked))
	nodes := f.toldNodes()
	assert.Equal(t, "b", nodes[len(nodes)-1].Labels[corev1.LabelTopologyZone])
	api.put(aService("web", "10.96.0.3"))
	f.shows(t, "Service default/db 10.96.0.2", "Service default/web 10.96.0.3")
}

// TestCase36_youngerHistory: the server's versions go back under watches that
// stay open, as behind a load balancer. Such a watch says nothing any more.
func TestCase36_youngerHistory(t *testing.T) {
	t.Parallel()
	api, f := followed(t)
	api.restore(10, aService("db", "10.96.0.2"), aNode("a"))
	f.shows(t, "Service default/db 10.96.0.2")
	f.recovers(t, lost)
	api.put(aSlice("db-1", "db", "10.1.0.2"))
	f.shows(t, "Service default/db 10.96.0.2", "EndpointSlice default/db-1 10.1.0.2")
}

// TestCase36_serverHangs: connections stay, nothing comes any more.
func TestCase36_serverHangs(t *testing.T) {
	t.Parallel()
	api, f := followed(t)
	api.do(func() { api.mute = true })
	api.put(aService("db", "10.96.0.2"))
	f.fails(t, "the server does not answer")
	require.Eventually(t, func() bool { return api.openWatches() == 0 }, patience, time.Millisecond,
		"watches that are silent, on a server that does not answer, are broken off")
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")

	api.do(func() { api.mute = false })
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1", "Service default/db 10.96.0.2")
	f.recovers(t, lost)
}

// TestCase36_serverIsBusy: what is asked is not answered, and watches go on. Nothing
// is listed anew, which would be more to do for the server.
func TestCase36_serverIsBusy(t *testing.T) {
	t.Parallel()
	api, f := followed(t)
	requests := func(resource string) (checks, lists, watches int) {
		for _, q := range api.asked(resource) {
			switch {
			case q.Get("limit") == "1":
				checks++
			case q.Get("watch") == "" || q.Get("sendInitialEvents") == "true":
				lists++
			default:
				watches++
			}
		}
		return checks, lists, watches
	}
	before := map[string][2]int{}
	for _, resource := range []string{services, epslices, nodes} {
		_, lists, watches := requests(resource)
		before[resource] = [2]int{lists, watches}
		require.Equal(t, 1, lists, resource)
	}

	api.do(func() { api.busy = true })
	f.fails(t, "the server does not answer")
	checked := f.now().Checked
	// Longer than a request may be silent.
	require.Eventually(t, func() bool {
		api.bookmark()
		checks, _, _ := requests(services)
		return checks > silence+2
	}, patience, 100*time.Millisecond)
	for resource, want := range before {
		_, lists, watches := requests(resource)
		assert.Equal(t, want, [2]int{lists, watches}, resource)
	}
	f.fails(t, "the server does not answer")
	assert.Equal(t, checked, f.now().Checked, "the age of the state is known")
	api.put(aService("db", "10.96.0.2"))
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1", "Service default/db 10.96.0.2")

	api.do(func() { api.busy = false })
	f.recovers(t, lost)
}

func TestSource_hangsFromTheStart(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"))
	api.do(func() { api.mute = true })
	f, _ := start(t, Options{Client: api.client(t), Check: often})
	f.fails(t, "the server does not answer")
	assert.Empty(t, f.sequence())
	api.do(func() { api.mute = false })
	f.shows(t, "Service default/web 10.96.0.1")
	f.recovers(t, unknown)
}

// TestSource_rightsRevoked: the watches stand, but would not be let in again.
func TestSource_rightsRevoked(t *testing.T) {
	t.Parallel()
	api, f := followed(t)
	api.answer(services, http.StatusForbidden)
	f.fails(t, "services: test says Forbidden (bind the account to the cluster role system:node-proxier")
	assert.NotContains(t, f.now().Err.Error(), "endpointslices: ")
	api.put(aService("db", "10.96.0.2")) // what the server still tells counts
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1", "Service default/db 10.96.0.2")
	api.answer(services, 0)
	f.recovers(t, lost)
}

func TestSource_credentialsExpired(t *testing.T) {
	t.Parallel()
	api, f := followed(t)
	for _, resource := range []string{services, epslices, nodes} {
		api.answer(resource, http.StatusUnauthorized)
	}
	f.fails(t, "the credentials are wrong or have expired")
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")
	for _, resource := range []string{services, epslices, nodes} {
		api.answer(resource, 0)
	}
	f.recovers(t, lost)
}

// TestSource_nodesForbidden: Services need not suffer.
func TestSource_nodesForbidden(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"), aNode("a"))
	api.answer(nodes, http.StatusForbidden)
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1", Check: often})
	f.shows(t, "Service default/web 10.96.0.1")
	f.fails(t, "nodes: test says Forbidden")
	assert.Empty(t, f.toldNodes())
	api.answer(nodes, 0)
	require.Eventually(t, func() bool { return len(f.toldNodes()) == 1 }, patience, time.Millisecond)
	f.fails(t, "")
}

// TestSource_slicesForbidden: a state without endpoints would be a wrong one.
func TestSource_slicesForbidden(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"))
	api.answer(epslices, http.StatusForbidden)
	f, _ := start(t, Options{Client: api.client(t), Check: often})
	f.fails(t, "endpointslices: test says Forbidden")
	assert.Empty(t, f.sequence())
	assert.Empty(t, api.asked(endpoints), "they are there, and not for us")
	api.answer(epslices, 0)
	f.shows(t, "Service default/web 10.96.0.1")
	f.recovers(t, unknown)
}

// TestSource_silentRequest: a request is never answered, while others are.
func TestSource_silentRequest(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"))
	api.do(func() { api.mute = true })
	f, _ := start(t, Options{Client: api.client(t), Check: time.Second})
	require.Eventually(t, func() bool { return len(api.asked(services)) > 0 }, patience, time.Millisecond)
	api.do(func() { api.mute = false }) // which is too late for those that were asked before
	f.shows(t, "Service default/web 10.96.0.1")
}

// TestCase36_watchExpired: the version from which a watch would go on is no
// longer there. What went meanwhile is only seen to be missing.
func TestCase36_watchExpired(t *testing.T) {
	t.Parallel()
	api, f := followed(t)
	db := aService("db", "10.96.0.2")
	db.ResourceVersion = "1050"
	api.compact(func() {
		delete(api.objects[services], "default/web")
		api.objects[services]["default/db"] = db
	})
	f.shows(t, "Service default/db 10.96.0.2", "EndpointSlice default/web-1 10.1.0.1")
	assert.Contains(t, f.sequence(), "REMOVE services")
	f.fails(t, "")
}
