package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Traced names service ports whose connections and flows are told of step by
// step.
type Traced struct{ Namespace, Name, Port string } // Namespace, Port empty: any

func (t Traced) has(n service.PortName) bool {
	return t.Name == n.Name && (t.Namespace == "" || t.Namespace == n.Namespace) && (t.Port == "" || t.Port == n.Port)
}

// TracedLines is how many lines the traces of all connections and flows may
// write in a second. What is more is left out, and how much that was is said.
const TracedLines = 100

// tracer writes what traces tell. Where nobody asked for a trace there is none,
// and all that is left in the data path is a comparison with nil at each step of
// a connection's life, and none at its bytes or a flow's datagrams.
type tracer struct {
	traced []Traced
	log    logrus.FieldLogger
	begun  atomic.Uint64 // traces

	mu      sync.Mutex
	second  time.Time // when the one began that lines are counted in
	lines   int
	leftOut int
	tell    *time.Timer // of what was left out; set while something is
	ended   bool
}

// newTracer is nil where nothing is traced. Close it.
func newTracer(traced []Traced, log logrus.FieldLogger) *tracer {
	if len(traced) == 0 {
		return nil
	}
	return &tracer{traced: traced, log: log}
}

// close says what was left out. No line comes after it.
func (r *tracer) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tell != nil {
		r.tell.Stop()
	}
	r.sayLeftOut()
	r.ended = true
}

// line writes one, unless there are too many.
func (r *tracer) line(log logrus.FieldLogger, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.second) >= time.Second {
		r.second, r.lines = now, 0
	}
	switch {
	case r.ended:
	case r.lines < TracedLines:
		r.lines++
		log.Infof(format, args...)
	default:
		if r.leftOut == 0 {
			r.tell = time.AfterFunc(time.Until(r.second.Add(time.Second)), func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.sayLeftOut()
			})
		}
		r.leftOut++
	}
}

// sayLeftOut is called with mu held.
func (r *tracer) sayLeftOut() {
	if r.leftOut > 0 && !r.ended {
		r.log.Warnf("%d lines of traced connections were left out: there are no more than %d in a second", r.leftOut, TracedLines)
		r.leftOut = 0
	}
}

// portTrace makes the traces of one service port.
type portTrace struct {
	tracer   *tracer
	key      service.Key
	listener netip.AddrPort
}

// of is for a listener of a service port; nil where the port is not traced.
func (r *tracer) of(key service.Key, listener netip.AddrPort) *portTrace {
	if r == nil {
		return nil
	}
	for _, t := range r.traced {
		if t.has(key.PortName) {
			return &portTrace{r, key, listener}
		}
	}
	return nil
}

// begin makes the trace of a client's connection or flow.
func (p *portTrace) begin(client netip.AddrPort) *trace {
	kind := "connection"
	if p.key.Protocol == service.UDP {
		kind = "flow"
	}
	fields := logrus.Fields{kind: p.tracer.begun.Add(1), "service": p.key.PortName.String(), "client": client}
	return &trace{tracer: p.tracer, log: p.tracer.log.WithFields(fields), began: time.Now()}
}

// accepted begins a connection's trace: where the client wanted to go, and who
// took it.
func (p *portTrace) accepted(client, called netip.AddrPort) *trace {
	t := p.begin(client)
	if called == p.listener {
		t.say("accepted at %v", called)
	} else {
		t.say("accepted at %v, which rules lead to the listener %v", called, p.listener)
	}
	return t
}

// firstDatagram begins a flow's trace. The address that a client has sent to is
// known where the listener is on all of the host's.
func (p *portTrace) firstDatagram(client netip.AddrPort, to netip.Addr) *trace {
	t := p.begin(client)
	if to.IsValid() {
		t.say("first datagram, to %v", netip.AddrPortFrom(to, p.listener.Port()))
	} else {
		t.say("first datagram, at the listener %v", p.listener)
	}
	return t
}

// turnedAway is for a client that is reset at accept.
func (p *portTrace) turnedAway(why string, client netip.AddrPort) {
	p.begin(client).say("reset at once: " + whyTurnedAway(why))
}

// dropped is for a datagram of whichever flow, or of none.
func (p *portTrace) dropped(why dropReason) {
	p.tracer.line(p.tracer.log.WithField("service", p.key.PortName.String()), "a datagram is dropped: %v", why)
}

// trace tells of one connection or flow. Only pick and from may be called where it is nil.
type trace struct {
	tracer *tracer
	log    logrus.FieldLogger
	began  time.Time
}

func (t *trace) say(format string, args ...any) { t.tracer.line(t.log, format, args...) }

// pick asks the balancer, and tells why it answers as it does.
func (t *trace) pick(b balancer, client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, bool) {
	if t == nil {
		return b.Pick(client, tried)
	}
	endpoint, why, ok := b.PickWhy(client, tried)
	switch {
	case ok:
		t.say("connecting to %v: %v", endpoint, why)
	case len(tried) == 0:
		t.say("there is no endpoint")
	default:
		t.say("there is no other endpoint")
	}
	return endpoint, ok
}

// from tells where a dial goes from, where that is not plain.
func (t *trace) from(s sender) {
	if t != nil && s.isClients() {
		t.say("from the client's own address (--transparent)")
	}
}

func (t *trace) connected(to netip.AddrPort, after time.Duration) {
	t.say("connected to %v, %v after the accept", to, short(after))
}

func (t *trace) outrun(endpoint netip.AddrPort, after time.Duration) {
	t.say("given up on %v after %v: another answered first", endpoint, short(after))
}

func (t *trace) dialFailed(endpoint netip.AddrPort, after time.Duration, err error) {
	var op *net.OpError // says again whom it is about
	if errors.As(err, &op) {
		err = op.Err
	}
	t.say("no connection to %v after %v: %v", endpoint, short(after), err)
}

func (t *trace) refused(why string) {
	if why == refusedNoEndpoint {
		t.say("the client is reset: there is no endpoint")
		return
	}
	t.say("the client is reset: no endpoint could be connected to")
}

// closed is for one side's end of its stream, which the other is told of.
func (t *trace) closed(byClient bool, after int64) {
	side, other := sides(byClient)
	t.say("the %s has closed its side after %s; the %s is told so", side, quantity(after, "byte"), other)
}

// broken is for a side that was reset or has vanished.
func (t *trace) broken(client bool) {
	side, other := sides(client)
	t.say("the %s has reset its connection, or vanished; the %s is told so when it has all that came before", side, other)
}

func sides(client bool) (one, other string) {
	if client {
		return "client", "endpoint"
	}
	return "endpoint", "client"
}

// ended tells how a connection has ended, by the reason that metrics have.
func (t *trace) ended(why string, up, down int64) {
	t.say("ended (%s) after %v: %s up, %s down", why, short(time.Since(t.began)), quantity(up, "byte"), quantity(down, "byte"))
}

func (t *trace) noFlow(to netip.AddrPort, why dropReason) { t.say("no flow to %v: %v", to, why) }

func (t *trace) answered() {
	t.say("the endpoint has answered, %v after the first datagram", short(time.Since(t.began)))
}

func (t *trace) flowRefused(by netip.AddrPort) {
	t.say("%v refuses (ICMP), or no way leads there: the next datagram picks anew", by)
}

// flowEnded: the next flow of the same client may be of the same trace.
func (t *trace) flowEnded(to netip.AddrPort, why endReason, up, down Traffic) {
	of := func(x Traffic) string {
		return fmt.Sprintf("%s (%s)", quantity(int64(x.Datagrams), "datagram"), quantity(int64(x.Bytes), "byte"))
	}
	t.say("the flow to %v is over (%v) after %v: %s up, %s down", to, why, short(time.Since(t.began)), of(up), of(down))
}

// quantity is a number of things in words.
func quantity(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// short is a duration without digits that nobody reads.
func short(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
