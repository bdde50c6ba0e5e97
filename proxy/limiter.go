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
	held, ok := l.due(message)
	if !ok {
		return
	}
	if held > 0 {
		log = log.WithField("held_back", held)
	}
	log.Warn(message)
}

// due says whether a message may be logged now, and how often it was held back
// since it last was.
func (l *limiter) due(message string) (held int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last[message]) < l.every {
		l.held[message]++
		return 0, false
	}
	held = l.held[message]
	l.last[message], l.held[message] = now, 0
	return held, true
}
