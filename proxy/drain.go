package proxy

import (
	"context"
	"fmt"
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

// Close ends every connection and flow that is still open and closes all sockets.
// Rules stay as they are.
func (p *Proxier) Close() {
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
}

// Drain returns when no connection is open, or when ctx ends. Listeners accept on:
// rules may still lead clients here.
func (p *Proxier) Drain(ctx context.Context) {
	open := p.shared.tcp.open()
	if open == 0 || ctx.Err() != nil {
		return
	}
	limit := ""
	if end, ok := ctx.Deadline(); ok {
		limit = fmt.Sprintf(", in %v at the latest", time.Until(end).Round(time.Millisecond))
	}
	p.config.Log.Infof("stopping when the last of %d connections has ended%s", open, limit)
	for p.shared.tcp.open() > 0 && ctx.Err() == nil {
		pause(ctx, 10*time.Millisecond)
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
