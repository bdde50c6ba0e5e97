package etcd

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// putAll writes n Services and as many slices, a hundred keys at a time.
func (s *server) putAll(n, round int) {
	s.t.Helper()
	var ops []clientv3.Op
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		ops = append(ops,
			clientv3.OpPut(serviceKey(name), aService(name, fmt.Sprintf("10.%d.%d.%d", 100+round, i>>8, i&255))),
			clientv3.OpPut(sliceKey(name), aSlice(name, name, fmt.Sprintf("10.%d.%d.%d", round, i>>8, i&255))))
		if len(ops) == 100 || i == n-1 {
			_, err := s.client.Txn(soon(s.t)).Then(ops...).Commit()
			require.NoError(s.t, err)
			ops = nil
		}
	}
}

// TestSource_tenThousandKeys are listed in pages, at one revision while others
// are written.
func TestSource_tenThousandKeys(t *testing.T) {
	t.Parallel()
	const services = 5000
	s := startServer(t)
	s.putAll(services, 1)
	f := s.source()
	s.putAll(services, 2)
	require.Eventually(t, func() bool {
		snapshot := f.services.Snapshot()
		if len(snapshot.Services) != services || len(snapshot.Endpoints) != services {
			return false
		}
		for i := range services {
			if snapshot.Services[i].Spec.ClusterIP[:7] != "10.102." || snapshot.Endpoints[i].Slices[0].Endpoints[0].Addresses[0][:5] != "10.2." {
				return false
			}
		}
		return true
	}, time.Minute, 50*time.Millisecond)
	f.recovers(t)
	assert.Empty(t, f.services.Snapshot().Problems)
}

// TestCase35_burstIsOneChange: ten thousand updates of a hundred keys that come
// while nobody looks are a hundred.
func TestCase35_burstIsOneChange(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.putAll(50, 0)
	o := Options{Servers: []string{s.url()}}
	o.Defaults()
	c, err := o.connect()
	require.NoError(t, err)
	defer c.close()
	_, revision, err := c.list(soon(t), o.directories())
	require.NoError(t, err)
	w, err := c.watchFrom(soon(t), o.directories(), revision, o.Check)
	require.NoError(t, err)
	defer w.stop()
	for round := range 100 {
		s.putAll(50, 1+round)
	}
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		newest := 0
		for _, e := range w.heard.changed {
			if e.Kv.ModRevision == revision+100 {
				newest++
			}
		}
		return newest == 100
	}, time.Minute, time.Millisecond)
	heard := w.take()
	require.NoError(t, heard.ended)
	require.Len(t, heard.changed, 100)
	assert.Empty(t, w.take().changed)
}

// TestCase35_burstThroughASource comes as far fewer updates than it has, and
// none of the hundred shows a Service without its endpoints.
func TestCase35_burstThroughASource(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	source, err := New("etcd", Options{Servers: []string{s.url()}})
	require.NoError(t, err)
	services, endpoints, status := make(chan config.ServiceUpdate), make(chan config.EndpointsUpdate), make(chan config.SourceStatus)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- source.Run(ctx, config.Updates{Services: services, Endpoints: endpoints, Status: status})
	}()
	var written atomic.Bool
	wrote := make(chan struct{})
	changes, objects := 0, 0
	last := map[string]string{}
	deadline := time.After(time.Minute)
	for !written.Load() || last["web-49"] != "10.200.0.49" {
		select {
		case u := <-services:
			changes++
			objects += len(u.Services)
			for _, o := range u.Services {
				last[o.Name] = o.Spec.ClusterIP
			}
			if u.Op == config.SET {
				go func() {
					defer close(wrote)
					for round := range 100 {
						s.putAll(50, 1+round)
					}
					written.Store(true)
				}()
			}
		case u := <-endpoints:
			require.Equal(t, len(u.Slices) > 0 || u.Op == config.SET, u.More, "its Services follow")
		case <-status:
		case <-deadline:
			require.Fail(t, "does not come to an end", "%v", last)
		}
	}
	<-wrote
	cancel()
	require.NoError(t, <-ended)
	assert.LessOrEqual(t, changes, 101)
	assert.LessOrEqual(t, objects, 5000)
	t.Logf("100 transactions with 10,000 updates came as %d changes with %d Services", changes, objects)
}
