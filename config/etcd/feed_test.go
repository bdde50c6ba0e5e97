package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// feed is a ServiceConfig with a running source, and what it came to.
type feed struct {
	services *config.ServiceConfig
	logs     *logtest.Hook
	ended    chan error
	stop     func() error

	mu   sync.Mutex
	seen int // snapshots that handlers were told of
}

// start runs a source on a server until the test ends or stop is called.
func (s *server) source(options ...func(*Options)) *feed {
	s.t.Helper()
	o := Options{Servers: []string{s.url()}, Check: 50 * time.Millisecond}
	for _, set := range options {
		set(&o)
	}
	log, hook := logtest.NewNullLogger()
	o.Log = log
	source, err := New("etcd", o)
	require.NoError(s.t, err)
	f := &feed{logs: hook, ended: make(chan error, 1)}
	f.services = config.New(logrusNull(), config.Options{})
	f.services.Add(source)
	f.services.Register(config.ServiceKind|config.EndpointsKind, config.HandlerFunc(func(config.Snapshot) {
		f.mu.Lock()
		f.seen++
		f.mu.Unlock()
	}))
	ctx, cancel := context.WithCancel(context.Background())
	go func() { f.ended <- f.services.Run(ctx) }()
	f.stop = sync.OnceValue(func() error {
		cancel()
		return <-f.ended
	})
	s.t.Cleanup(func() { _ = f.stop() })
	return f
}

func logrusNull() logrus.FieldLogger {
	log, _ := logtest.NewNullLogger()
	return log
}

// info is what the source says of itself.
func (f *feed) info() config.SourceInfo { return f.services.Snapshot().Sources[0] }

// view is the state as lines: what there is, and problems.
func (f *feed) view() string {
	s := f.services.Snapshot()
	var lines []string
	if !s.Complete {
		lines = append(lines, "not delivered")
	}
	for _, v := range s.Services {
		lines = append(lines, fmt.Sprintf("Service %s/%s %s", v.Namespace, v.Name, v.Spec.ClusterIP))
	}
	for _, e := range s.Endpoints {
		for _, slice := range e.Slices {
			lines = append(lines, fmt.Sprintf("EndpointSlice %s/%s of %s %v", slice.Namespace, slice.Name, e.Name, slice.Endpoints[0].Addresses))
		}
		if e.Endpoints != nil {
			lines = append(lines, fmt.Sprintf("Endpoints %s/%s %s", e.Namespace, e.Name, e.Endpoints.Subsets[0].Addresses[0].IP))
		}
	}
	for _, p := range s.Problems {
		lines = append(lines, p.Reason+": "+p.String())
	}
	return strings.Join(lines, "\n")
}

// shows waits until the state is the lines given.
func (f *feed) shows(t testing.TB, lines ...string) {
	t.Helper()
	want := strings.Join(lines, "\n")
	deadline := time.Now().Add(time.Minute)
	for f.view() != want && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, want, f.view(), "%+v", f.info())
}

// fails waits until the source says that it fails, with words of the text.
func (f *feed) fails(t testing.TB, text string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if strings.Contains(f.info().Err, text) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	require.Fail(t, "does not fail as it should", "%s: %+v", text, f.info())
}

// recovers waits until the source has seen everything after this call.
func (f *feed) recovers(t testing.TB) {
	t.Helper()
	now := time.Now()
	deadline := now.Add(time.Minute)
	for time.Now().Before(deadline) {
		if i := f.info(); i.Err == "" && i.Checked.After(now) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	require.Fail(t, "does not recover", "%+v", f.info())
}

// refuses waits for the source to end the run, and returns why.
func (f *feed) refuses(t testing.TB) string {
	t.Helper()
	select {
	case err := <-f.ended:
		f.ended <- err // for stop
		var failed *config.SourceError
		require.ErrorAs(t, err, &failed)
		return failed.Err.Error()
	case <-time.After(time.Minute):
		require.Fail(t, "does not end", "%+v", f.info())
		return ""
	}
}

// messages are the log's lines.
func (f *feed) messages() []string {
	var all []string
	for _, e := range f.logs.AllEntries() {
		line := e.Level.String() + ": " + e.Message
		if err, ok := e.Data[logrus.ErrorKey]; ok {
			line += ": " + fmt.Sprint(err)
		}
		all = append(all, line)
	}
	return all
}

func (f *feed) logged(text string) int {
	n := 0
	for _, m := range f.messages() {
		if strings.Contains(m, text) {
			n++
		}
	}
	return n
}

// The keys and values of tests.

func serviceKey(name string) string   { return "/registry/services/specs/default/" + name }
func sliceKey(name string) string     { return "/registry/endpointslices/default/" + name }
func endpointsKey(name string) string { return "/registry/services/endpoints/default/" + name }

func aService(name, ip string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":"default"},"spec":{"clusterIP":%q,"ports":[{"port":80}]}}`, name, ip)
}

func aSlice(name, of, ip string) string {
	return fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,"namespace":"default","labels":{"kubernetes.io/service-name":%q}},`+
		`"addressType":"IPv4","ports":[{"port":8080}],"endpoints":[{"addresses":[%q]}]}`, name, of, ip)
}

func someEndpoints(name, ip string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":%q,"namespace":"default"},"subsets":[{"addresses":[{"ip":%q}],"ports":[{"port":8080}]}]}`, name, ip)
}
