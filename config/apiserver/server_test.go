package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// server is an API server as far as watches go, with faults that the real one
// does not have on demand. e2e has the real one.
type server struct {
	addr string
	http *httptest.Server

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]metav1.Object // by resource and key
	events   []event
	oldest   int            // version that the oldest event has come after
	turn     chan struct{}  // closed at every change
	epoch    int            // watches of an older one end
	answers  map[string]int // by resource, a status to answer everything with
	mute     bool           // nothing is answered, and watches say nothing
	busy     bool           // a list of one object is never answered, and watches go on
	watches  int            // that are open
	requests []*http.Request
}

type event struct {
	version  int
	resource string
	kind     string // ADDED, MODIFIED, DELETED, BOOKMARK
	object   metav1.Object
}

const (
	services  = "services"
	epslices  = "endpointslices"
	endpoints = "endpoints"
	nodes     = "nodes"
)

// serve starts a server with objects. It ends with the test.
func serve(t *testing.T, objects ...metav1.Object) *server {
	t.Helper()
	s := &server{
		version: 1000, objects: map[string]map[string]metav1.Object{}, turn: make(chan struct{}), answers: map[string]int{},
	}
	s.listen(t, "127.0.0.1:0")
	t.Cleanup(s.close)
	s.put(objects...)
	return s
}

func (s *server) listen(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s.addr = l.Addr().String()
	s.http = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(s.handle)}}
	s.http.Start()
}

// client is a new client of the server.
func (s *server) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := Connection{Master: "http://" + s.addr, QPS: -1, ContentType: "application/json"}.Config()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// close ends the server and all connections.
func (s *server) close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// do changes the server.
func (s *server) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.turn)
	s.turn = make(chan struct{})
}

func resourceOf(o metav1.Object) string {
	switch o.(type) {
	case *corev1.Service:
		return services
	case *discoveryv1.EndpointSlice:
		return epslices
	case *v1Endpoints:
		return endpoints
	case *corev1.Node:
		return nodes
	}
	panic(fmt.Sprintf("no resource has a %T", o))
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// put creates or changes objects.
func (s *server) put(objects ...metav1.Object) {
	s.do(func() {
		for _, o := range objects {
			resource, kind := resourceOf(o), "ADDED"
			if s.objects[resource] == nil {
				s.objects[resource] = map[string]metav1.Object{}
			}
			if s.objects[resource][keyOf(o)] != nil {
				kind = "MODIFIED"
			}
			s.version++
			o.SetResourceVersion(strconv.Itoa(s.version))
			s.objects[resource][keyOf(o)] = o
			s.events = append(s.events, event{s.version, resource, kind, o})
		}
	})
}

// remove deletes objects.
func (s *server) remove(objects ...metav1.Object) {
	s.do(func() {
		for _, o := range objects {
			s.version++
			delete(s.objects[resourceOf(o)], keyOf(o))
			s.events = append(s.events, event{s.version, resourceOf(o), "DELETED", o})
		}
	})
}

// bookmark tells all watches that there is nothing else to tell.
func (s *server) bookmark() {
	s.do(func() {
		s.version++
		at := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.version)}}
		for _, resource := range []string{services, epslices, nodes} {
			s.events = append(s.events, event{s.version, resource, "BOOKMARK", at})
		}
	})
}

// restore makes the server one that was restored from a backup: its state is
// what is given, and its version starts at a number of its own. Watches go on
// from where they are, which may be a version that is yet to come.
func (s *server) restore(version int, objects ...metav1.Object) {
	s.do(func() {
		s.version, s.oldest, s.events = version, version, nil
		s.objects = map[string]map[string]metav1.Object{}
	})
	s.put(objects...)
}

// compact forgets all events, together with a change that nobody was told of,
// and ends all watches.
func (s *server) compact(change func()) {
	s.do(func() {
		change()
		s.version += 100
		s.events, s.oldest, s.epoch = nil, s.version, s.epoch+1
	})
}

// answer makes every request for a resource end in a status; 0: no longer.
func (s *server) answer(resource string, status int) {
	s.do(func() { s.answers[resource] = status })
}

func (s *server) openWatches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// asked is the queries for a resource so far.
func (s *server) asked(resource string) []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []url.Values
	for _, r := range s.requests {
		if strings.HasSuffix(r.URL.Path, "/"+resource) {
			all = append(all, r.URL.Query())
		}
	}
	return all
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.mu.Lock()
	s.requests = append(s.requests, r)
	mute, status := s.mute || s.busy && r.URL.Query().Get("limit") == "1", s.answers[resource]
	s.mu.Unlock()
	switch {
	case mute:
		<-r.Context().Done()
	case status != 0:
		fail(w, status)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, resource)
	default:
		s.list(w, r, resource)
	}
}

func fail(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(statusOf(status))
}

func statusOf(status int) metav1.Status {
	reasons := map[int]metav1.StatusReason{
		401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound,
		410: metav1.StatusReasonExpired,
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(status), Reason: reasons[status],
		Message: "test says " + string(reasons[status]),
	}
}

func kindOf(resource string) metav1.TypeMeta {
	return map[string]metav1.TypeMeta{
		services:  {Kind: "Service", APIVersion: "v1"},
		epslices:  {Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
		endpoints: {Kind: "Endpoints", APIVersion: "v1"},
		nodes:     {Kind: "Node", APIVersion: "v1"},
	}[resource]
}

func (s *server) list(w http.ResponseWriter, _ *http.Request, resource string) {
	s.mu.Lock()
	items := []metav1.Object{}
	for _, o := range s.objects[resource] {
		items = append(items, o)
	}
	kind := kindOf(resource)
	data, _ := json.Marshal(map[string]any{
		"kind": kind.Kind + "List", "apiVersion": kind.APIVersion,
		"metadata": metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}, "items": items,
	})
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// watch writes events until the client goes.
func (s *server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	s.watches++
	epoch := s.epoch
	expired := from < s.oldest && from != 0
	s.mu.Unlock()
	defer s.do(func() { s.watches-- })

	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	out := stream{w, resource}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		from = s.writeInitial(out)
	} else if expired {
		out.write("ERROR", statusOf(http.StatusGone))
		return
	}
	for {
		s.mu.Lock()
		turn := s.turn
		if s.epoch != epoch {
			s.mu.Unlock()
			return
		}
		var news []event
		for _, e := range s.events {
			if e.resource == resource && e.version > from && !s.mute {
				news, from = append(news, e), e.version
			}
		}
		for _, e := range news {
			out.write(e.kind, e.object)
		}
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-turn:
		}
	}
}

// writeInitial writes what there is, and the bookmark that ends it.
func (s *server) writeInitial(out stream) (version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects[out.resource] {
		out.write("ADDED", o)
	}
	end := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(s.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	out.write("BOOKMARK", end)
	return s.version
}

// stream is the body of a watch.
type stream struct {
	w        http.ResponseWriter
	resource string
}

func (s stream) write(kind string, object any) {
	data, _ := json.Marshal(object)
	if kind != "ERROR" { // a decoder wants to know the kind
		var fields map[string]any
		_ = json.Unmarshal(data, &fields)
		fields["kind"], fields["apiVersion"] = kindOf(s.resource).Kind, kindOf(s.resource).APIVersion
		data, _ = json.Marshal(fields)
	}
	fmt.Fprintf(s.w, `{"type":%q,"object":%s}`+"\n", kind, data)
}

// within runs something that must end by itself.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		assert.Fail(t, what+" does not end")
	}
}
