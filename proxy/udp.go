package proxy

import (
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// How a datagram passes, each way by the one goroutine of the system's edge
// (udp_linux.go: of all servers; udp_other.go: of the socket) that has read it:
//
//	client ──> udpServer.fromClient ── flow: known, or a new one to the endpoint
//	                 │                 that the balancer picks ──> endpointSocket.send
//	client <── clientSocket <── udpServer.replied <── endpoint
//
// No step waits for the network: what cannot be sent now is dropped, as a
// router would, and counted.

// maxDatagram is room for the longest datagram: its length field has 16 bits.
const maxDatagram = 1<<16 - 1

// provenAfter is how long a flow that gets no reply must go unrefused for its
// endpoint to count as working.
const provenAfter = time.Second

// flowLimit is what each flow takes one of: *flowBudget. It is safe for
// concurrent use and never blocks.
type flowLimit interface {
	tryAcquire() bool
	release()
}

// udpFlows are the UDP flows of all servers of a process. Where their limit is
// reached, the flow that was used longest ago, whichever server's it is, gives
// way to a new one.
type udpFlows struct {
	udpFlowsConfig
	loop  *udpLoop
	start time.Time

	mu    sync.Mutex // never held while waiting for anything but the balancer
	table flowTable
}

type udpFlowsConfig struct {
	limit    flowLimit
	senderOf func(client, endpoint netip.Addr) sender
	counters *udpCounters
	warn     *limiter
}

// newUDPFlows has nothing to close before the first server.
func newUDPFlows(c udpFlowsConfig) *udpFlows {
	u := &udpFlows{udpFlowsConfig: c, start: time.Now(), table: newFlowTable()}
	u.loop = newUDPLoop(u)
	return u
}

// close returns when everything has ended. Servers must be closed before.
func (u *udpFlows) close() { u.loop.close() }

// now is the time on the flows' clock, which is monotonic.
func (u *udpFlows) now() time.Duration { return time.Since(u.start) }

// udpServer takes the datagrams that come to one socket and gives each client
// a flow to an endpoint. Its methods may be called at any time, by anyone.
type udpServer struct {
	udpConfig
	socket *clientSocket
	open   sync.WaitGroup // sockets, timers and goroutines that have not ended

	// Guarded by flows.mu.
	group  flowGroup
	timer  *time.Timer // runs expire
	armed  bool
	closed bool
}

type udpConfig struct {
	flows    *udpFlows
	conn     *net.UDPConn // the server's, which closes it, once newUDPServer has returned no error
	balancer balancer
	account  *account
	trace    *portTrace    // nil: not traced
	idle     time.Duration // a flow without traffic ends after it
	log      logrus.FieldLogger
}

// newUDPServer serves until close. On an error conn is as it was.
func newUDPServer(c udpConfig) (*udpServer, error) {
	s := &udpServer{udpConfig: c, group: newFlowGroup(c.idle)}
	if err := c.flows.loop.listen(s, c.conn); err != nil {
		return nil, err
	}
	return s, nil
}

// close frees the address, ends the flows, and returns when that is done.
func (s *udpServer) close() {
	u := s.flows
	u.mu.Lock()
	if !s.closed {
		s.closed = true
		for f := range s.group.byUse.all {
			s.end(f, endedServer)
		}
		if s.armed && s.timer.Stop() {
			s.armed = false
			s.open.Done()
		}
		s.socket.close()
	}
	u.mu.Unlock()
	s.open.Wait()
}

// SyscallConn gives access to the socket that clients send to, until close.
func (s *udpServer) SyscallConn() (syscall.RawConn, error) { return s.socket.SyscallConn() }

// setIdle changes the idle time, of flows that exist too.
func (s *udpServer) setIdle(idle time.Duration) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	s.group.idle = idle
	if s.armed && s.timer.Stop() {
		s.armed = false
		s.open.Done()
	}
	s.arm(s.flows.now())
}

// endpointsChanged ends the flows that are not to be kept. The next
// datagram of their clients picks anew. Until that comes, or its idle time is over,
// a flow stays that still awaits an answer: an endpoint that is to end answers what it
// has been asked. Where no endpoint is left the server is closed, and all flows end.
func (s *udpServer) endpointsChanged(keep func(client netip.Addr, endpoint netip.AddrPort) bool) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	for f := range s.group.byUse.all {
		f.left = !keep(f.key.client.Addr(), f.endpoint)
		if f.left && f.awaited == 0 {
			s.end(f, endedEndpoint)
		}
	}
}

// fromClient sends a client's datagram on. Those of one client must come in
// order, from one goroutine. It keeps nothing of b.
func (s *udpServer) fromClient(b []byte, key flowKey, now time.Duration) {
	const tries = 3
	f, reason := s.flow(key, now)
	for try := 1; f != nil; try++ {
		err := f.socket.send(b)
		if err == nil {
			f.up.count(len(b))
			s.account.asked.count(len(b))
			return
		}
		if reason = whySendFailed(err); reason != dropFailed || try == tries {
			break
		}
		// The error may be an earlier datagram's, and this one not sent. So it
		// goes again, to another endpoint where there is one.
		s.refused(f)
		f, reason = s.flow(key, now)
	}
	s.drop(reason)
}

// flow is the flow for a client's datagram that came now, or why there is none.
func (s *udpServer) flow(key flowKey, now time.Duration) (*udpFlow, dropReason) {
	u := s.flows
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.closed {
		return nil, dropClosed
	}
	f := s.group.byKey[key]
	if f != nil && s.group.isOver(f, now) {
		s.end(f, endedIdle)
		f = nil
	}
	if f != nil && f.left {
		s.end(f, endedEndpoint)
		f = nil
	}
	if f == nil || f.refused {
		var reason dropReason
		if f, reason = s.pick(key, f, now); f == nil {
			return nil, reason
		}
	}
	u.table.use(&s.group, f, now)
	f.awaited++
	if !f.proven && now-f.trial >= provenAfter {
		s.prove(f)
	}
	return f, dropNone
}

// pick makes a flow to the endpoint whose turn it is. The client's flow so
// far, if it has one, goes on where it has the only endpoint, and ends where
// another is picked.
func (s *udpServer) pick(key flowKey, before *udpFlow, now time.Duration) (*udpFlow, dropReason) {
	if bars(s.balancer, key.client.Addr()) {
		return nil, dropSource
	}
	var tried []netip.AddrPort
	trace := s.begin(key, before)
	for {
		endpoint, ok := trace.pick(s.balancer, key.client.Addr(), tried)
		if !ok && len(tried) > 0 {
			return nil, dropUnreachable
		}
		if !ok {
			return nil, dropNoEndpoint
		}
		if before != nil && before.endpoint == endpoint {
			before.refused, before.trial = false, now
			return before, dropNone
		}
		if before != nil {
			s.end(before, endedRefused)
			before = nil
		}
		f, reason := s.openFlow(key, endpoint, now)
		if f != nil {
			f.trace = trace
			if trace != nil {
				trace.from(s.flows.senderOf(key.client.Addr(), endpoint.Addr()))
			}
		} else if trace != nil {
			trace.noFlow(endpoint, reason)
		}
		if reason != dropUnreachable {
			return f, reason
		}
		s.balancer.Failed(endpoint)
		tried = append(tried, endpoint)
	}
}

// begin is the trace of a flow to come, or of the one before that may go on.
func (s *udpServer) begin(key flowKey, before *udpFlow) *trace {
	switch {
	case s.trace == nil:
		return nil
	case before != nil && before.trace != nil:
		return before.trace
	}
	return s.trace.firstDatagram(key.client, key.local)
}

// openFlow makes a flow to the endpoint. Where descriptors or local ports have
// run out, the flow that was used longest ago gives way.
func (s *udpServer) openFlow(key flowKey, endpoint netip.AddrPort, now time.Duration) (*udpFlow, dropReason) {
	u := s.flows
	if !u.acquire() {
		return nil, dropNoDescriptor
	}
	f := &udpFlow{key: key, endpoint: endpoint, server: s, opened: now, trial: now, replyTo: s.socket.replyAddress(key)}
	err := u.loop.dial(f)
	if err != nil && whyDialFailed(err) == dropNoPort && u.evict() {
		// Some more, because the kernel looks through all ports for the last free one.
		for range u.table.size / 64 {
			u.evict()
		}
		err = u.loop.dial(f)
	}
	if err != nil {
		u.limit.release()
		return nil, whyDialFailed(err)
	}
	u.table.add(&s.group, f, now)
	u.counters.opened.Add(1)
	u.counters.active.Add(1)
	s.account.flowsOpened.Add(1)
	s.account.flowsActive.Add(1)
	s.arm(now)
	return f, dropNone
}

// acquire takes what a new flow needs of the limit, if need be from a flow that
// has ended and is not closed yet, or from the one that was used longest ago.
func (u *udpFlows) acquire() bool {
	return u.limit.tryAcquire() ||
		u.loop.reap(1) && u.limit.tryAcquire() ||
		u.evict() && u.limit.tryAcquire()
}

// evict ends the flow that was used longest ago; false if there is none.
func (u *udpFlows) evict() bool {
	f := u.table.byUse.last
	if f == nil {
		return false
	}
	f.server.end(f, endedEvicted)
	u.loop.reap(1)
	return true
}

// end takes a flow out and closes its socket. What is already on its way is dropped.
func (s *udpServer) end(f *udpFlow, why endReason) {
	f.ended = true
	s.flows.table.remove(&s.group, f)
	s.flows.counters.ended[why].Add(1)
	s.flows.counters.active.Add(-1)
	s.account.flowsActive.Add(-1)
	if f.trace != nil {
		f.trace.flowEnded(f.endpoint, why, f.up.status(), f.down.status())
	}
	f.socket.close()
}

// replied is told that a flow's endpoint sent something now, and says whether
// it may go to the client.
func (s *udpServer) replied(f *udpFlow, now time.Duration) bool {
	u := s.flows
	u.mu.Lock()
	defer u.mu.Unlock()
	if f.ended || s.group.isOver(f, now) {
		return false
	}
	u.table.use(&s.group, f, now)
	f.awaited = max(0, f.awaited-1)
	if !f.proven || f.refused {
		f.refused = false
		if f.trace != nil {
			f.trace.answered()
		}
		s.prove(f)
	}
	return true
}

// prove tells the balancer that the flow's endpoint works. A socket that could
// be connected says nothing about that.
func (s *udpServer) prove(f *udpFlow) {
	f.proven = true
	s.balancer.Succeeded(f.key.client.Addr(), f.endpoint)
}

// refused is told that a datagram of the flow came back: nobody listens at the
// endpoint, or no way leads there. The client's next datagram picks anew.
func (s *udpServer) refused(f *udpFlow) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if f.ended || f.refused {
		return // one failure, however many datagrams were on their way
	}
	f.refused, f.proven = true, false
	s.flows.counters.refused.Add(1)
	if f.trace != nil {
		f.trace.flowRefused(f.endpoint)
	}
	s.balancer.Failed(f.endpoint)
}

// arm sets the timer for the flow that is over first, where there is one.
func (s *udpServer) arm(now time.Duration) {
	f := s.group.byUse.last
	if f == nil || s.armed || s.closed {
		return
	}
	// Flows that are over one after the other are ended together.
	pause := max(f.used+s.group.idle-now, min(s.group.idle/32, 100*time.Millisecond))
	s.armed = true
	s.open.Add(1)
	if s.timer == nil {
		s.timer = time.AfterFunc(pause, s.expire)
	} else {
		s.timer.Reset(pause)
	}
}

// expire ends the flows that are over.
func (s *udpServer) expire() {
	defer s.open.Done()
	u := s.flows
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	for f := s.group.byUse.last; f != nil && s.group.isOver(f, now); f = s.group.byUse.last {
		s.end(f, endedIdle)
	}
	s.armed = false
	s.arm(now)
}

// drop counts a datagram that is not sent on, and says so once in a while
// where somebody should do something about it.
func (s *udpServer) drop(why dropReason) {
	s.flows.counters.dropped[why].Add(1)
	if s.trace != nil {
		s.trace.dropped(why)
	}
	switch why {
	case dropNoDescriptor:
		s.flows.warn.limited(s.log, "out of descriptors: UDP datagrams of new clients are dropped; raise the limit on open files (ulimit -n, LimitNOFILE)")
	case dropNoPort:
		s.flows.warn.limited(s.log, "out of local ports: UDP datagrams of new clients are dropped; widen net.ipv4.ip_local_port_range")
	}
}

// readFailed is told that reading what clients send failed.
func (s *udpServer) readFailed(err error) {
	s.flows.counters.readErrors.Add(1)
	s.flows.warn.limited(s.log.WithError(err), "reading UDP datagrams failed, going on")
}
