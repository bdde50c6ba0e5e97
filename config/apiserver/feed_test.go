package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// never is a period that no test lives to see.
const never = time.Hour

// patience is how long something may take that should take no time.
const patience = 2 * time.Minute

// feed takes what a running Source sends, in place of a ServiceConfig.
type feed struct {
	mu      sync.Mutex
	busy    sync.Mutex        // held: no update is done with
	sent    []string          // "SET endpoints more", "ADD services"
	objects map[string]string // "Service default/web" -> what it is
	status  config.SourceStatus
	nodes   []*corev1.Node
	source  *Source
	logs    *logtest.Hook
}

// start runs a source until the test ends or stop is called.
func start(t *testing.T, o Options) (f *feed, stop func()) {
	t.Helper()
	log, hook := logtest.NewNullLogger()
	f = &feed{objects: map[string]string{}, logs: hook}
	o.Log = log
	o.OnNode = func(n *corev1.Node) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.nodes = append(f.nodes, n)
	}
	s, err := New("apiserver", o)
	require.NoError(t, err)
	f.source = s
	ctx, cancel := context.WithCancel(context.Background())
	services, endpoints := make(chan config.ServiceUpdate), make(chan config.EndpointsUpdate)
	status := make(chan config.SourceStatus)
	var all sync.WaitGroup
	all.Go(func() {
		assert.NoError(t, s.Run(ctx, config.Updates{Services: services, Endpoints: endpoints, Status: status}))
	})
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case u := <-services:
				f.takeServices(u)
			case u := <-endpoints:
				f.takeEndpoints(u)
			case u := <-status:
				f.mu.Lock()
				f.status = u
				f.mu.Unlock()
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	return f, stop
}

func (f *feed) takeServices(u config.ServiceUpdate) {
	f.busy.Lock()
	defer f.busy.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, fmt.Sprintf("%s services%s", u.Op, more(u.More)))
	f.clear(u.Op, "Service ")
	for _, s := range u.Services {
		f.put(u.Op, "Service ", s, s.Spec.ClusterIP)
	}
}

func (f *feed) takeEndpoints(u config.EndpointsUpdate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, fmt.Sprintf("%s endpoints%s", u.Op, more(u.More)))
	f.clear(u.Op, "EndpointSlice ", "Endpoints ")
	for _, s := range u.Slices {
		var at []string
		for _, e := range s.Endpoints {
			at = append(at, e.Addresses[0])
		}
		f.put(u.Op, "EndpointSlice ", s, strings.Join(at, " "))
	}
	for _, e := range u.Endpoints {
		var at []string
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				at = append(at, a.IP)
			}
		}
		f.put(u.Op, "Endpoints ", e, strings.Join(at, " "))
	}
}

func more(more bool) string {
	if more {
		return " more"
	}
	return ""
}

func (f *feed) clear(op config.Operation, kinds ...string) {
	if op != config.SET {
		return
	}
	for name := range f.objects {
		for _, kind := range kinds {
			if strings.HasPrefix(name, kind) {
				delete(f.objects, name)
			}
		}
	}
}

func (f *feed) put(op config.Operation, kind string, o metav1.Object, what string) {
	name := kind + o.GetNamespace() + "/" + o.GetName()
	if op == config.REMOVE {
		delete(f.objects, name)
	} else {
		f.objects[name] = what
	}
}

// view is what is known by now, sorted.
func (f *feed) view() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for name, what := range f.objects {
		lines = append(lines, name+" "+what)
	}
	slices.Sort(lines)
	return lines
}

// shows waits until the state is the lines given, in any order.
func (f *feed) shows(t *testing.T, lines ...string) {
	t.Helper()
	slices.Sort(lines)
	deadline := time.Now().Add(patience)
	for !slices.Equal(f.view(), lines) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, lines, f.view(), "%v", f.now().Err)
}

// sequence is what came so far, without the statuses.
func (f *feed) sequence() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// now is the newest status.
func (f *feed) now() config.SourceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// fails waits until the status has an error that contains a text; with none,
// until it has no error.
func (f *feed) fails(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := f.now().Err
		if text == "" || err == nil {
			return text == "" && err == nil
		}
		return strings.Contains(err.Error(), text)
	}, patience, time.Millisecond, "want %q", text)
}

// logged is what the log was told, as "level message".
func (f *feed) logged() []string {
	var lines []string
	for _, e := range f.logs.AllEntries() {
		lines = append(lines, e.Level.String()+" "+e.Message)
	}
	return lines
}

// toldNodes is what OnNode was told.
func (f *feed) toldNodes() []*corev1.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.nodes)
}
