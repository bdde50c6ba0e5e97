package proxy

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// limiter lets a message through once in a while and counts what it held back.
type limiter struct {
	mu    sync.Mutex
	every time.Duration
	last  map[string]time.Time
	held  map[string]int
}

func newLimiter(every time.Duration) *limiter {
	return &limiter{every: every, last: make(map[string]time.Time), held: make(map[string]int)}
}

// limited logs a warning, unless the same one was logged a moment ago.
func (l *limiter) limited(log logrus.FieldLogger, message string) {
	l.mu.Lock()
	if now := time.Now(); now.Sub(l.last[message]) < l.every {
		l.held[message]++
		l.mu.Unlock()
		return
	}
	held := l.held[message]
	l.last[message], l.held[message] = time.Now(), 0
	l.mu.Unlock()
	if held > 0 {
		log = log.WithField("held_back", held)
	}
	log.Warn(message)
}
