package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// status is what a proxy tells of itself, as far as these tests ask: what it
// has made of its sources, and not by which sockets it serves it.
type status struct {
	Failing  string
	Sources  []sourceStatus
	Problems []problem
	Ports    []portStatus
}

type sourceStatus struct {
	Name                string
	Delivered           bool
	Services, Endpoints int
	Error               string
}

type problem struct{ Object, Field, Reason string }

type portStatus struct {
	Name, Family, Source, Affinity string
	Portals                        []struct{ Kind, Addr, State string }
	Endpoints                      []struct {
		Addr, Node, Pod string
		Picked          bool
	}
}

func (p *proxy) status(t *testing.T) status {
	t.Helper()
	body, err := p.node.Get(t.Context(), statusURL)
	require.NoError(t, err)
	var s status
	require.NoError(t, json.Unmarshal([]byte(body), &s), "%s", body)
	return s
}

// source is how the source of that name is doing.
func (s status) source(t *testing.T, name string) sourceStatus {
	t.Helper()
	for _, one := range s.Sources {
		if one.Name == name {
			return one
		}
	}
	require.Fail(t, "no such source", "%s in %v", name, s.Sources)
	return sourceStatus{}
}

// ports are those of the Service of that name.
func (s status) ports(service string) []portStatus {
	var all []portStatus
	for _, p := range s.Ports {
		if strings.HasPrefix(p.Name, "default/"+service+":") {
			all = append(all, p)
		}
	}
	return all
}

// requireAsFresh waits until a proxy says of all that it serves what one says
// that has just been started, on another host, with the same flags.
func requireAsFresh(t *testing.T, p *proxy, other *nettest.Host, flags ...string) {
	t.Helper()
	t.Run("as a fresh start", func(t *testing.T) { // so that the other one ends here
		fresh := startFrom(t, other, flags...)
		var want, got status
		eventuallyWithin(t, recovery, func() bool {
			want, got = fresh.status(t).elsewhere(), p.status(t).elsewhere()
			return assert.ObjectsAreEqual(want, got)
		}, func() string {
			assert.Equal(t, want, got)
			return "the same state as after a fresh start"
		})
		fresh.stop(t)
	})
}

// elsewhere is what the same state is on another node: node ports are at its own
// addresses.
func (s status) elsewhere() status {
	for _, p := range s.Ports {
		for i, portal := range p.Portals {
			if portal.Kind == string(service.NodePort) {
				p.Portals[i].Addr = portal.Addr[strings.LastIndex(portal.Addr, ":"):]
			}
		}
	}
	return s
}

// weight is what a process holds.
type weight struct{ goroutines, descriptors int }

// weigh counts what a proxy with --profiling holds.
func (p *proxy) weigh(t *testing.T) weight {
	t.Helper()
	body, err := p.node.Get(t.Context(), "http://127.0.0.1:10249/debug/pprof/goroutine?debug=1")
	require.NoError(t, err)
	var w weight
	_, err = fmt.Sscanf(body, "goroutine profile: total %d", &w.goroutines)
	require.NoError(t, err, "%s", body)
	w.descriptors = p.descriptors(t)
	return w
}

// requireNoGrowth waits until a proxy that is at rest holds no more than it did.
// After an outage its requests may each open a connection to the server, where
// they shared one before, and these stay: three, of two goroutines each.
func (p *proxy) requireNoGrowth(t *testing.T, before weight) {
	t.Helper()
	before.goroutines += 2 * 2
	before.descriptors += 2
	var now weight
	eventuallyWithin(t, recovery, func() bool {
		now = p.weigh(t)
		return now.goroutines <= before.goroutines && now.descriptors <= before.descriptors
	}, func() string {
		body, _ := p.node.Get(t.Context(), "http://127.0.0.1:10249/debug/pprof/goroutine?debug=1")
		return fmt.Sprintf("what the proxy holds to fall to %+v again; now %+v\n%s", before, now, body)
	})
}

// metric is a number that the proxy tells: the sum over all labels, which is 0
// where there is nothing yet. A name that no metric has fails the test.
func (p *proxy) metric(t *testing.T, name string) float64 {
	t.Helper()
	body, err := p.node.Get(t.Context(), metricsURL)
	require.NoError(t, err)
	all := regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(body, -1)
	if len(all) == 0 {
		require.Contains(t, documentedMetrics(t), name, "no metric has that name")
	}
	var sum float64
	for _, found := range all {
		v, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		sum += v
	}
	return sum
}

// documentedMetrics are the names of all numbers that the proxy may tell, as
// docs/metrics.md has them, which is written from what the program registers.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^### (\S+)\n\n(\w+),`).FindAllStringSubmatch(string(doc), -1) {
		if m[2] == "histogram" {
			names = append(names, m[1]+"_count", m[1]+"_sum", m[1]+"_bucket")
			continue
		}
		names = append(names, m[1])
	}
	return names
}
