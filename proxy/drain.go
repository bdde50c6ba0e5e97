package proxy

import (
	"context"
	"time"
)

// retire closes a listener that nothing leads to any more. Connections that
// wait in its queue would be reset, so it accepts on for a moment.
func (p *Proxier) retire(l listener) {
	p.retired.Add(1)
	go p.lingerThenClose(l)
}

func (p *Proxier) lingerThenClose(l listener) {
	defer p.retired.Done()
	pause(p.running, p.config.Linger)
	l.close()
	p.shared.budget.giveListener()
}

// drain waits for connections to end, then closes everything.
func (p *Proxier) drain() error {
	p.drainConnections()
	p.mu.Lock()
	for key, s := range p.ports {
		s.closeAll(p)
		delete(p.ports, key)
	}
	p.mu.Unlock()
	p.claims.release(p.shared.budget, nil)
	p.stopped()
	p.retired.Wait()
	p.shared.tcp.close()
	p.shared.udp.close()
	p.shared.tracer.close()
	return nil
}

// drainConnections returns when no connection is open, or at the drain timeout.
func (p *Proxier) drainConnections() {
	if p.config.DrainTimeout == 0 {
		return
	}
	open := p.shared.tcp.open()
	if open > 0 {
		p.config.Log.Infof("stopping when the last of %d connections has ended, in %v at the latest", open, p.config.DrainTimeout)
	}
	deadline := time.Now().Add(p.config.DrainTimeout)
	for p.shared.tcp.open() > 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
}

// pause waits for d, or for ctx.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
