package events

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Options say who writes Events, and where.
type Options struct {
	Client    kubernetes.Interface // for nothing else, see the package
	Component string               // the program
	Node      string               // the name of the Node that it runs on
	Flush     time.Duration        // how long Run may go on at its end with what is not written yet; 0 means 2 s
	Log       logrus.FieldLogger
}

const (
	defaultFlush = 2 * time.Second
	most         = 1000 // Events that wait to be written
	messageSize  = 1024 // bytes that the API allows
	nameSize     = 253  // and in a name
)

// Recorder writes Events. Problems, Started and OnNode may be called by anybody at any
// time and do not block.
type Recorder struct {
	options    Options
	correlator *record.EventCorrelator
	refused    bool          // the last Event was refused; Run's alone
	wake       chan struct{} // capacity 1: something waits

	mu      sync.Mutex
	waiting []*corev1.Event
	known   map[service.Problem]bool // problems that stand and have their Event
}

// New makes a Recorder. Nothing is written before Run.
func New(o Options) *Recorder {
	if o.Flush == 0 {
		o.Flush = defaultFlush
	}
	return &Recorder{
		options: o, correlator: record.NewEventCorrelator(clock.RealClock{}),
		wake: make(chan struct{}, 1), known: map[service.Problem]bool{},
	}
}

// Started says on the Node that this program has started.
func (r *Recorder) Started() {
	r.onNode(corev1.EventTypeNormal, "Starting", "Starting "+r.options.Component+".")
}

// OnNode warns on the Node, once for each call.
func (r *Recorder) OnNode(reason, message string) { r.onNode(corev1.EventTypeWarning, reason, message) }

func (r *Recorder) onNode(kind, reason, message string) {
	// Kubelet and kube-proxy take a Node's name for its UID in Events, and
	// kubectl describe looks for both.
	node := corev1.ObjectReference{Kind: "Node", Name: r.options.Node, UID: types.UID(r.options.Node)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(node, kind, reason, message)
}

// Problems says which problems there are now. Those that were not among them
// the last time become Events on what object returns; false: on nothing.
func (r *Recorder) Problems(all []service.Problem, object func(service.Problem) (corev1.ObjectReference, bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[service.Problem]bool, len(r.known))
	for _, p := range all {
		if r.known[p] {
			known[p] = true
			continue
		}
		// What finds no room is tried again at the next call.
		if on, ok := object(p); ok && r.add(on, corev1.EventTypeWarning, p.Reason, messageOf(p)) {
			known[p] = true
		}
	}
	r.known = known
}

// messageOf is a problem without the object, which the Event is on.
func messageOf(p service.Problem) string {
	text := p.Detail
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Advice != "" {
		text += " (" + p.Advice + ")"
	}
	return text
}

// add has an Event written. Its caller holds mu. False: there is no room.
func (r *Recorder) add(on corev1.ObjectReference, kind, reason, message string) bool {
	if len(r.waiting) >= most {
		return false
	}
	now := metav1.Now()
	namespace := on.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	r.waiting = append(r.waiting, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: nameOf(on, now)},
		InvolvedObject: on,
		Type:           kind, Reason: reason, Message: cut(message),
		Source:              corev1.EventSource{Component: r.options.Component, Host: r.options.Node},
		ReportingController: r.options.Component, ReportingInstance: r.options.Node,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return true
}

// nameOf is an Event's name, made of its object's as client-go makes it, but that the
// API takes it whatever the length of that.
func nameOf(on corev1.ObjectReference, at metav1.Time) string {
	when := fmt.Sprintf(".%x", at.UnixNano())
	name := on.Name[:min(len(on.Name), nameSize-len(when))]
	return strings.TrimRight(name, "-.") + when // a part may not end like that
}

// cut is a message that the API takes.
func cut(message string) string {
	if len(message) <= messageSize {
		return message
	}
	const rest = "…"
	return strings.ToValidUTF8(message[:messageSize-len(rest)], "") + rest
}
