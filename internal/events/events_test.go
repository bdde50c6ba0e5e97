package events

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// server takes Events as an API server does, or answers otherwise.
type server struct {
	http *httptest.Server

	mu     sync.Mutex
	events []corev1.Event
	asked  int
	answer func(w http.ResponseWriter) bool // true: it has answered
}

func serve(t *testing.T) *server {
	s := &server{}
	s.http = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked++
	answer := s.answer
	s.mu.Unlock()
	if answer != nil && answer(w) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var e corev1.Event
	if r.Method == http.MethodPatch {
		for i := range s.events {
			if strings.HasSuffix(r.URL.Path, "/namespaces/"+s.events[i].Namespace+"/events/"+s.events[i].Name) {
				_ = json.NewDecoder(r.Body).Decode(&s.events[i]) // what the patch does not name stays
				_ = json.NewEncoder(w).Encode(s.events[i])
				return
			}
		}
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	_ = json.NewDecoder(r.Body).Decode(&e)
	s.events = append(s.events, e)
	_ = json.NewEncoder(w).Encode(e)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: string(reason),
	})
}

func (s *server) does(answer func(w http.ResponseWriter) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// lines are the Events, as kubectl would show them.
func (s *server) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, e := range s.events {
		o := e.InvolvedObject
		lines = append(lines, fmt.Sprintf("%s %s %s %s/%s %s x%d: %s", e.Namespace, e.Type, e.Reason, o.Kind, o.Name, o.UID, e.Count, e.Message))
	}
	return lines
}

func (s *server) shows(t *testing.T, lines ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.lines()) >= len(lines) && s.lines()[len(lines)-1] == lines[len(lines)-1] },
		patience, time.Millisecond, "%q", lines)
	assert.Equal(t, lines, s.lines())
}

// recorder is a Recorder that writes to the server.
func (s *server) recorder(t *testing.T) (*Recorder, *logtest.Hook) {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.http.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	log, hook := logtest.NewNullLogger()
	return New(Options{Client: client, Component: "userspace-proxy", Node: "node-1", Log: log}), hook
}

// run runs a Recorder until the test ends or stop is called.
func run(t *testing.T, r *Recorder) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(t, err)
		case <-time.After(patience):
			assert.Fail(t, "Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func problemOf(name, detail string) service.Problem {
	return service.Problem{
		Object: "Service default/" + name, Field: "spec.ports[0].nodePort", Reason: "PortTaken", Detail: detail, Advice: "stop it",
		Service: service.ServiceRef{Source: "apiserver", Namespace: "default", Name: name},
	}
}

// onServices has an Event on every problem of a Service.
func onServices(p service.Problem) (corev1.ObjectReference, bool) {
	return corev1.ObjectReference{
		Kind: "Service", Namespace: p.Service.Namespace, Name: p.Service.Name, UID: "uid-of-it",
	}, p.Service.Name != ""
}

func TestCase48_problemBecomesOneEvent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r, hook := s.recorder(t)
	run(t, r)
	web, bare := problemOf("web", "30080 is taken"), problemOf("db", "30090 is taken")
	bare.Field, bare.Advice = "", ""
	const first = "default Warning PortTaken Service/web uid-of-it x1: spec.ports[0].nodePort: 30080 is taken (stop it)"
	const second = "default Warning PortTaken Service/db uid-of-it x1: 30090 is taken"
	others := service.Problem{Object: "Node node-1", Reason: "FamilyMissing", Detail: "no IPv6"}

	r.Problems([]service.Problem{web, others}, onServices)
	s.shows(t, first)
	for range 10 { // it stands
		r.Problems([]service.Problem{web, others}, onServices)
	}
	r.Problems([]service.Problem{web, bare}, onServices)
	s.shows(t, first, second)

	// It goes and comes back: the same Event counts one more.
	r.Problems([]service.Problem{bare}, onServices)
	r.Problems([]service.Problem{bare, web}, onServices)
	require.Eventually(t, func() bool { return strings.Contains(s.lines()[0], " x2: ") }, patience, time.Millisecond)
	s.shows(t, strings.Replace(first, "x1", "x2", 1), second)

	s.mu.Lock()
	e := s.events[0]
	s.mu.Unlock()
	assert.Equal(t, corev1.EventSource{Component: "userspace-proxy", Host: "node-1"}, e.Source)
	assert.Equal(t, "userspace-proxy", e.ReportingController)
	assert.False(t, e.FirstTimestamp.IsZero())
	assert.Empty(t, hook.AllEntries())
}

func TestRecorder_started(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r, _ := s.recorder(t)
	run(t, r)
	r.Started()
	s.shows(t, "default Normal Starting Node/node-1 node-1 x1: Starting userspace-proxy.")
}

// TestRecorder_flapping: client-go's correlator joins and then stops what
// changes all the time.
func TestRecorder_flapping(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r, _ := s.recorder(t)
	stop := run(t, r)
	for i := range 200 {
		r.Problems([]service.Problem{problemOf("web", fmt.Sprintf("taken by process %d", i))}, onServices)
	}
	r.Problems([]service.Problem{problemOf("db", "taken")}, onServices)
	require.Eventually(t, func() bool {
		lines := s.lines()
		return len(lines) > 0 && strings.Contains(lines[len(lines)-1], "Service/db")
	}, patience, time.Millisecond)
	stop()
	assert.Len(t, s.lines(), 9+1+1, "9 that differ, one for all that follow, one of the other Service")
	assert.Equal(t, 25+1, s.requests(), "25 in a row for one object")
}

func TestRecorder_refused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.does(func(w http.ResponseWriter) bool {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return true
	})
	r, hook := s.recorder(t)
	stop := run(t, r)
	r.Problems([]service.Problem{problemOf("web", "a"), problemOf("db", "b")}, onServices)
	require.Eventually(t, func() bool { return s.requests() == 2 }, patience, time.Millisecond)
	s.does(nil)
	r.Started()
	s.shows(t, "default Normal Starting Node/node-1 node-1 x1: Starting userspace-proxy.")
	stop()
	require.Len(t, hook.AllEntries(), 1, "told once")
	assert.Contains(t, hook.LastEntry().Message, "let the account create and patch events")
	assert.Equal(t, 3, s.requests(), "what is refused is not tried again")
}

func TestRecorder_triesAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.does(func(http.ResponseWriter) bool { panic(http.ErrAbortHandler) })
	r, hook := s.recorder(t)
	run(t, r)
	r.Started()
	require.Eventually(t, func() bool { return s.requests() > 0 }, patience, time.Millisecond)
	s.does(nil)
	s.shows(t, "default Normal Starting Node/node-1 node-1 x1: Starting userspace-proxy.")
	assert.Empty(t, hook.AllEntries(), "who follows the API server tells that it is away")
}

func TestRecorder_endWritesWhatWaits(t *testing.T) {
	t.Parallel()
	s := serve(t)
	asked, proceed := make(chan struct{}, 100), make(chan struct{})
	s.does(func(http.ResponseWriter) bool {
		asked <- struct{}{}
		<-proceed
		return false
	})
	r, _ := s.recorder(t)
	stop := run(t, r)
	r.Started()
	r.Problems([]service.Problem{problemOf("web", "a"), problemOf("db", "b")}, onServices)
	<-asked
	go func() {
		time.Sleep(10 * time.Millisecond) // in the middle of the end
		close(proceed)
	}()
	stop()
	assert.Len(t, s.lines(), 3)
}

func TestRecorder_endDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	s := serve(t)
	asked, done := make(chan struct{}, 100), make(chan struct{})
	defer close(done)
	s.does(func(http.ResponseWriter) bool {
		asked <- struct{}{}
		<-done
		return true
	})
	r, _ := s.recorder(t)
	r.options.Flush = 10 * time.Millisecond
	stop := run(t, r)
	r.Started()
	r.Started()
	<-asked
	stop()
	assert.Empty(t, s.lines())
}

// TestRecorder_bounded: what finds no room comes later, since it stands.
func TestRecorder_bounded(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r, _ := s.recorder(t)
	var all []service.Problem
	for i := range most + 10 {
		all = append(all, problemOf(fmt.Sprintf("s%d", i), "taken"))
	}
	r.Problems(all, onServices)
	assert.Len(t, r.waiting, most)
	run(t, r)
	require.Eventually(t, func() bool {
		r.Problems(all, onServices)
		return len(s.lines()) == most+10
	}, patience, 10*time.Millisecond)
}

// TestRecorder_longName: an Event has a name that the API takes, whatever the length
// of its object's.
func TestRecorder_longName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"node-1", strings.Repeat("n", 236), strings.Repeat("n", 237), strings.Repeat("n", 253),
		strings.Repeat("n", 235) + ".zone", strings.Repeat("n", 234) + "--zone",
	} {
		on := corev1.ObjectReference{Kind: "Node", Name: name}
		got := nameOf(on, metav1.Now())
		assert.Empty(t, validation.IsDNS1123Subdomain(got), got)
		assert.True(t, strings.HasPrefix(got, name[:min(len(name), 234)]), got)
	}
}

func TestRecorder_longMessage(t *testing.T) {
	t.Parallel()
	for shift := range 4 { // the cut falls into a character
		text := cut(strings.Repeat("x", shift) + strings.Repeat("ü", messageSize))
		assert.LessOrEqual(t, len(text), messageSize)
		assert.True(t, utf8.ValidString(text))
		assert.True(t, strings.HasSuffix(text, "ü…"))
	}
	assert.Equal(t, "short", cut("short"))
}
