package etcd

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// through has a source go through a gate.
func through(g *gate) func(*Options) {
	return func(o *Options) { o.Servers = []string{g.url("http")} }
}

func (s *server) hostPort() string { return s.addr + ":2379" }

// TestSource_serverThatIsNotThereYet: that is no wrong configuration.
func TestSource_serverThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	f := s.source()
	f.fails(t, "etcd: reading /registry/services/specs/: ")
	f.fails(t, "connection refused")
	assert.Equal(t, "not delivered", f.view())
	assert.Equal(t, 1, f.logged("warning: etcd cannot be read; nothing is known of it yet, and it is tried again: "), f.messages())
	s.start()
	s.connect(clientv3.Config{})
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))
	f.shows(t, "Service default/web 10.96.0.1")
	f.recovers(t)
	assert.Equal(t, 1, f.logged("info: etcd is read again after "), f.messages())
	assert.Len(t, f.messages(), 2)
}

func TestSource_serverIsRestarted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.put(serviceKey("web"), aService("web", "10.96.0.1"))
	f := s.source()
	f.shows(t, "Service default/web 10.96.0.1")
	s.kill()
	f.fails(t, "connection refused")
	age := f.info().Checked
	f.shows(t, "Service default/web 10.96.0.1") // it stays
	assert.Equal(t, 1, f.logged("etcd cannot be read; what is known of it stays in use"), f.messages())
	s.start()
	s.put(serviceKey("web"), aService("web", "10.96.0.2"))
	f.shows(t, "Service default/web 10.96.0.2")
	f.recovers(t)
	assert.True(t, f.info().Checked.After(age))
	assert.Len(t, f.messages(), 2, f.messages())
	require.NoError(t, f.stop())
}

// TestSource_networkDropsPackets for a moment, and for so long that the
// connection is given up.
func TestSource_networkDropsPackets(t *testing.T) {
	t.Parallel()
	for _, until := range []string{"no answer in time", "keepalive ping failed"} {
		t.Run(until, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			g := newGate(t, s.hostPort())
			s.put(serviceKey("web"), aService("web", "10.96.0.1"))
			f := s.source(through(g))
			f.shows(t, "Service default/web 10.96.0.1")
			f.recovers(t)
			g.swallow(true)
			s.put(serviceKey("web"), aService("web", "10.96.0.2"))
			f.fails(t, until)
			f.shows(t, "Service default/web 10.96.0.1")
			g.swallow(false)
			f.shows(t, "Service default/web 10.96.0.2")
			f.recovers(t)
		})
	}
}

func TestSource_compactionDuringAnOutage(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	g := newGate(t, s.hostPort())
	s.put(serviceKey("a"), aService("a", "10.96.0.1"))
	s.put(serviceKey("b"), aService("b", "10.96.0.2"))
	s.put(sliceKey("a-1"), aSlice("a-1", "a", "10.10.0.1"))
	f := s.source(through(g))
	f.shows(t, "Service default/a 10.96.0.1", "Service default/b 10.96.0.2", "EndpointSlice default/a-1 of a [10.10.0.1]")
	before := f.services.Snapshot()

	g.close()
	f.fails(t, "etcd: ")
	s.remove(serviceKey("b"))
	s.remove(sliceKey("a-1"))
	s.compact(s.put(serviceKey("c"), aService("c", "10.96.0.3")))
	g.open(s.hostPort())
	f.shows(t, "Service default/a 10.96.0.1", "Service default/c 10.96.0.3")
	f.recovers(t)
	assert.Same(t, before.Services[0].Service, f.services.Snapshot().Services[0].Service, "what has not changed is the very same to handlers")
}

// TestWatch_compacted: the revision to begin at is gone before the watch begins.
func TestWatch_compacted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	o := Options{Servers: []string{s.url()}}
	o.Defaults()
	c, err := o.connect()
	require.NoError(t, err)
	defer c.close()
	_, revision, err := c.list(soon(t), o.directories())
	require.NoError(t, err)
	for i := range 3 {
		s.put(serviceKey("web"), aService("web", fmt.Sprintf("10.96.0.%d", i)))
	}
	s.compact(revision + 2)
	w, err := c.watchFrom(soon(t), o.directories(), revision, o.Check)
	require.NoError(t, err)
	defer w.stop()
	<-w.news
	require.Eventually(t, func() bool { return w.take().ended != nil }, time.Minute, time.Millisecond)
	require.ErrorIs(t, w.take().ended, errCompacted)
}

// copyOf copies the data of a server that does not run.
func (s *server) copyOf(dir string) string {
	s.t.Helper()
	to := s.t.TempDir()
	require.NoError(s.t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// TestSource_restoredFromABackup: revisions that were known come to be again,
// with other contents. The new history is behind what was known, and then, at
// the moment of reading it again, ahead of it.
func TestSource_restoredFromABackup(t *testing.T) {
	t.Parallel()
	for name, writes := range map[string]int{"behind": 0, "ahead": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			s.put(serviceKey("a"), aService("a", "10.96.0.1"))
			s.put(serviceKey("b"), aService("b", "10.96.0.2"))
			s.kill()
			backup := s.copyOf(s.dir)
			s.start()
			for i := range 9 {
				s.put(serviceKey("a"), aService("a", fmt.Sprintf("10.96.1.%d", i)))
			}
			s.put(serviceKey("c"), aService("c", "10.96.0.3"))
			s.remove(serviceKey("b"))
			g := newGate(t, s.hostPort())
			f := s.source(through(g))
			f.shows(t, "Service default/a 10.96.1.8", "Service default/c 10.96.0.3")

			g.close()
			s.kill()
			s.dir = backup
			s.start()
			for i := range writes {
				s.put(serviceKey("d"), aService("d", fmt.Sprintf("10.96.2.%d", i)))
			}
			g.open(s.hostPort())
			want := []string{"Service default/a 10.96.0.1", "Service default/b 10.96.0.2"}
			if writes > 0 {
				want = append(want, "Service default/d 10.96.2.19")
			}
			f.shows(t, want...)
			f.recovers(t)
			s.put(serviceKey("e"), aService("e", "10.96.0.5")) // and changes are heard
			f.shows(t, append(want, "Service default/e 10.96.0.5")...)
			warned := f.logged("it was restored from a backup, or holds other data; what it has now is served")
			assert.Equal(t, writes == 0, warned == 1, f.messages())
		})
	}
}

// TestSource_historyThatGoesBackwards while a connection lives: two servers,
// one of which has the data that the other one had some time ago.
func TestSource_historyThatGoesBackwards(t *testing.T) {
	t.Parallel()
	old := startServer(t)
	old.put(serviceKey("a"), aService("a", "10.96.0.1"))
	old.kill()
	s := newServer(t)
	s.dir = s.copyOf(old.dir)
	s.start()
	s.connect(clientv3.Config{})
	s.put(serviceKey("a"), aService("a", "10.96.0.2"))
	old.start()
	f := s.source(func(o *Options) { o.Servers = append(o.Servers, old.url()) })
	f.fails(t, errBackwards.Error())
}

func TestSource_serversOfDifferentClusters(t *testing.T) {
	t.Parallel()
	s, other := startServer(t), startServer(t)
	f := s.source(func(o *Options) { o.Servers = append(o.Servers, other.url()) })
	f.fails(t, errOtherCluster.Error())
}

// startCluster runs three servers as one cluster.
func startCluster(t *testing.T) []*server {
	t.Helper()
	var all []*server
	var peers []string
	for _, name := range []string{"a", "b", "c"} {
		s := newServer(t)
		s.name = name
		all, peers = append(all, s), append(peers, name+"="+s.peer())
	}
	for _, s := range all {
		s.peers = strings.Join(peers, ",")
		s.begin()
	}
	for _, s := range all {
		s.connect(clientv3.Config{})
	}
	return all
}

// TestSource_leaderLost: a server without a leader knows nothing new, and says
// so; of a cluster that has one, any server will do.
func TestSource_leaderLost(t *testing.T) {
	t.Parallel()
	all := startCluster(t)
	all[0].put(serviceKey("web"), aService("web", "10.96.0.1"))
	f := all[0].source(func(o *Options) { o.Servers = []string{all[0].url(), all[1].url(), all[2].url()} })
	f.shows(t, "Service default/web 10.96.0.1")
	f.recovers(t)

	all[2].kill()
	all[0].put(serviceKey("web"), aService("web", "10.96.0.2"))
	f.shows(t, "Service default/web 10.96.0.2")
	f.recovers(t)

	all[1].kill()
	f.fails(t, "etcdserver: no leader")
	age := f.info().Checked
	f.shows(t, "Service default/web 10.96.0.2")
	all[1].begin()
	all[0].put(serviceKey("web"), aService("web", "10.96.0.3"))
	f.shows(t, "Service default/web 10.96.0.3")
	f.recovers(t)
	assert.True(t, f.info().Checked.After(age))
}
