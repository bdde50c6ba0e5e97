package main

import (
	"context"
	"net"
	"time"
)

// notify tells a supervisor of the kind of systemd (sd_notify(3), Type=notify)
// that the proxy serves what is wanted, and later that it is stopping, where one
// wants to know; and that it serves who served this node before. It returns when ctx
// ends.
func (s *server) notify(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-s.translator.synced:
		s.tellSupervisor("READY=1\nSTATUS=" + s.translator.summary(s.proxier.Status()))
		if s.hold != nil {
			s.hold.Serving()
		}
		<-ctx.Done()
	}
	s.tellSupervisor("STOPPING=1")
	return nil
}

func (s *server) tellSupervisor(state string) {
	if s.supervisor == "" {
		return
	}
	conn, err := net.DialTimeout("unixgram", s.supervisor, time.Second) // a name that begins with @ is an abstract one
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close() // a datagram is sent or not
	}
	if err != nil {
		s.log.WithError(err).Warn("NOTIFY_SOCKET: the supervisor cannot be told how the proxy does")
	}
}
