package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// never is a poll interval that no test lives to see, so that only watches
// tell of changes.
const never = time.Hour

// kindsRead is what messages say of the kinds that are read.
const kindsRead = "Service, EndpointSlice, Endpoints, and List, ServiceList, EndpointSliceList, EndpointsList of them"

// feed takes what a running Source sends, in place of a ServiceConfig.
type feed struct {
	mu        sync.Mutex
	sent      []string // what came, in order: "endpoints+" (more follows), "services", "status"
	services  []string // ns/name port, of the last SET
	slices    []string // ns/name first address, of the last SET
	endpoints []string
	status    config.SourceStatus
	logs      *logtest.Hook
}

// start runs a source on paths until the test ends. Where it is never to poll
// and other programs hold all inotify instances for the moment, it waits.
func start(t *testing.T, poll time.Duration, paths ...string) *feed {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		log, hook := logtest.NewNullLogger()
		s, err := New("file", Options{Paths: paths, Poll: poll, Log: log})
		require.NoError(t, err)
		f := &feed{logs: hook}
		stop := f.run(t, s)
		require.Eventually(t, func() bool { return f.count("status") > 0 }, time.Minute, time.Millisecond)
		if poll != never || len(hook.AllEntries()) == 0 {
			return f
		}
		stop()
		require.True(t, time.Now().Before(deadline), hook.LastEntry().Message)
	}
}

// run runs a source until the test ends or stop is called.
func (f *feed) run(t *testing.T, s *Source) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	services, endpoints := make(chan config.ServiceUpdate), make(chan config.EndpointsUpdate)
	status := make(chan config.SourceStatus)
	ran, took := make(chan error, 1), make(chan struct{})
	go func() {
		ran <- s.Run(ctx, config.Updates{Services: services, Endpoints: endpoints, Status: status})
	}()
	go func() {
		defer close(took)
		for {
			select {
			case <-ctx.Done():
				return
			case u := <-services:
				f.takeServices(u)
			case u := <-endpoints:
				f.takeEndpoints(u)
			case u := <-status:
				f.takeStatus(u)
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ran)
		<-took
	})
	t.Cleanup(stop)
	return stop
}

func (f *feed) takeServices(u config.ServiceUpdate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, fmt.Sprintf("%s services%s", u.Op, more(u.More)))
	f.services = nil
	for _, s := range u.Services {
		f.services = append(f.services, fmt.Sprintf("%s/%s %s", s.Namespace, s.Name, s.Spec.ClusterIP))
	}
}

func (f *feed) takeEndpoints(u config.EndpointsUpdate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, fmt.Sprintf("%s endpoints%s", u.Op, more(u.More)))
	f.slices, f.endpoints = nil, nil
	for _, s := range u.Slices {
		f.slices = append(f.slices, s.Namespace+"/"+s.Name)
	}
	for _, e := range u.Endpoints {
		f.endpoints = append(f.endpoints, e.Namespace+"/"+e.Name)
	}
}

func (f *feed) takeStatus(u config.SourceStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, "status")
	f.status = u
}

func more(more bool) string {
	if more {
		return " more"
	}
	return ""
}

// count is how often something came.
func (f *feed) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.sent {
		if s == what {
			n++
		}
	}
	return n
}

// sequence is what came so far, without the statuses.
func (f *feed) sequence() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.sent), func(s string) bool { return s == "status" })
}

// view is the last state as text, problems included.
func (f *feed) view() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Concat(f.services, f.slices, f.endpoints)
	for _, p := range f.status.Problems {
		all = append(all, p.Reason+": "+p.String())
	}
	if f.status.Err != nil {
		all = append(all, "error: "+f.status.Err.Error())
	}
	return strings.Join(all, "\n")
}

// shows waits until the state is the lines given.
func (f *feed) shows(t *testing.T, lines ...string) {
	t.Helper()
	want := strings.Join(lines, "\n")
	deadline := time.Now().Add(time.Minute)
	for f.view() != want && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, want, f.view())
}

// stays looks at the files several times more and expects no change.
func (f *feed) stays(t *testing.T, lines ...string) {
	t.Helper()
	f.shows(t, lines...)
	before := f.count("status")
	require.Eventually(t, func() bool { return f.count("status") > before+5 }, time.Minute, time.Millisecond)
	f.shows(t, lines...)
}

// aService is a Service as people write it.
func aService(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\nspec:\n  clusterIP: %s\n  ports:\n  - port: 80\n", name, ip)
}

func aSlice(name, of string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s\n"+
		"  labels:\n    kubernetes.io/service-name: %s\naddressType: IPv4\nports:\n- port: 8080\n"+
		"endpoints:\n- addresses: [10.10.2.2]\n", name, of)
}

func write(t *testing.T, content string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// replace puts a new file in an old one's place in one step.
func replace(t *testing.T, content string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	write(t, content, name+".new~")
	require.NoError(t, os.Rename(name+".new~", name))
}
