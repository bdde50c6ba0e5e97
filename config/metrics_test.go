package config

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestCase36_stalenessIsInMetrics: how old what a source has is, and that it
// fails, for each source.
func TestCase36_stalenessIsInMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := build(t, Options{Now: func() time.Time { return time.Unix(1500, 0) }})
		first := c.AddSource("first")
		c.AddSource("second")
		registry := prometheus.NewRegistry()
		c.RegisterMetrics(registry)
		c.run()
		sendServices(first, SET, "n/a", "n/b")
		sendSlices(first, SET, "n/s of a")
		first.Status <- SourceStatus{
			Checked: time.Unix(1000, 250_000_000), Err: errors.New("away"),
			Problems: []service.Problem{{Object: "x", Reason: "Y"}},
		}
		synctest.Wait()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP userspace_proxy_source_checked_timestamp_seconds When a source last saw its origin whole, so that nothing newer was there; 0 before it did.
# TYPE userspace_proxy_source_checked_timestamp_seconds gauge
userspace_proxy_source_checked_timestamp_seconds{source="first"} 1000.25
userspace_proxy_source_checked_timestamp_seconds{source="second"} 0
# HELP userspace_proxy_source_delivered 1 when a source's first full state is in, else 0.
# TYPE userspace_proxy_source_delivered gauge
userspace_proxy_source_delivered{source="first"} 1
userspace_proxy_source_delivered{source="second"} 0
# HELP userspace_proxy_source_failing 1 while a source cannot see its origin and its last state stays in use, else 0.
# TYPE userspace_proxy_source_failing gauge
userspace_proxy_source_failing{source="first"} 1
userspace_proxy_source_failing{source="second"} 0
# HELP userspace_proxy_source_objects Objects that a source has, by kind; Endpoints are EndpointSlices and Endpoints.
# TYPE userspace_proxy_source_objects gauge
userspace_proxy_source_objects{kind="Endpoints",source="first"} 1
userspace_proxy_source_objects{kind="Endpoints",source="second"} 0
userspace_proxy_source_objects{kind="Service",source="first"} 2
userspace_proxy_source_objects{kind="Service",source="second"} 0
# HELP userspace_proxy_source_problems Problems with what a source has.
# TYPE userspace_proxy_source_problems gauge
userspace_proxy_source_problems{source="first"} 1
userspace_proxy_source_problems{source="second"} 0
# HELP userspace_proxy_source_updated_timestamp_seconds When a source last sent an update; 0 before the first.
# TYPE userspace_proxy_source_updated_timestamp_seconds gauge
userspace_proxy_source_updated_timestamp_seconds{source="first"} 1500
userspace_proxy_source_updated_timestamp_seconds{source="second"} 0
`)))
		c.end(t)
	})
}

func TestOutageIsLoggedOnceAndSoIsItsEnd(t *testing.T) {
	t.Parallel()
	log, hook := logrustest.NewNullLogger()
	o := Outage{Of: "etcd", Log: log}
	for _, err := range []error{nil, errors.New("refused"), errors.New("no answer"), nil, nil, errors.New("refused")} {
		o.Tell(err, hook.LastEntry() != nil)
	}
	var got []string
	for _, e := range hook.AllEntries() {
		got = append(got, e.Level.String()+": "+e.Message)
	}
	assert.Equal(t, []string{
		"warning: etcd cannot be read; nothing is known of it yet, and it is tried again",
		"info: etcd is read again after 0s",
		"warning: etcd cannot be read; what is known of it stays in use, and it is tried again",
	}, got)
}
