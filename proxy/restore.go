package proxy

// Restore has Rules synced soon, since somebody has changed what they made or,
// where isKnown is false, may have. It returns at once.
func (p *Proxier) Restore(isKnown bool) {
	p.tracked.damaged()
	p.mu.Lock()
	if isKnown {
		p.status.damaged++
	}
	p.ask()
	p.mu.Unlock()
	p.wake()
}

// damage counts the times that somebody has changed the rules.
func (p *Proxier) damage() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status.damaged
}

// restored counts that rules are in force again that had been changed, up to
// that time.
func (p *Proxier) restored(damage uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.mended < damage {
		p.status.mended = damage
		p.status.restored++
		p.shared.metrics.restored.Inc()
	}
}
