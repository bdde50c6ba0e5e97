package connlimit

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// Limit is how many connections may be open of all the servers together whose
// ConnState is its Note.
type Limit struct {
	most int

	mu   sync.Mutex
	open []net.Conn // in the order in which they came
}

// New makes a limit of this many connections, which is above 0.
func New(most int) *Limit { return &Limit{most: most} }

// Note is told what becomes of connections (http.Server.ConnState). For one too
// many the oldest is closed, answered or not: were the new one refused, or made to
// wait, whoever holds idle ones would keep everybody else out.
func (l *Limit) Note(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew: // the server accepts no other before this returns
		if len(l.open) == l.most {
			_ = l.open[0].Close() // so its server ends with it
			l.open = slices.Delete(l.open, 0, 1)
		}
		l.open = append(l.open, c)
	case http.StateClosed, http.StateHijacked:
		l.open = slices.DeleteFunc(l.open, func(other net.Conn) bool { return other == c })
	}
}
