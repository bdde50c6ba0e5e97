package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/internal/takeover"
	"github.com/userspace-proxy/userspace-proxy/proxy"
)

// checkTakeover tells what stands in the way of --takeover.
func (o *options) checkTakeover(c *checks) {
	switch {
	case !o.takeover:
	case runtime.GOOS != "linux":
		c.check("--takeover", errors.New("works on Linux alone: leave it out here"))
	case o.way() == redirectNone:
		c.check("--takeover", errors.New("needs rules, which lead clients to one process or the other: give --redirect=nftables or iptables, or leave it out"))
	}
}

// takeNode makes sure that no other process serves this node: two would undo each
// other's rules. With --takeover one that does lets go of it, and serves the
// connections that it has to their end.
func (s *server) takeNode(ctx context.Context) error {
	if s.options.way() == redirectNone {
		return nil // a port that another has is found by itself
	}
	var from *takeover.Predecessor
	var err error
	if s.options.takeover {
		s.hold, from, err = takeover.TakeOver(ctx, programName)
	} else {
		s.hold, err = takeover.Take(programName)
	}
	var taken *takeover.TakenError
	switch {
	case errors.As(err, &taken) && taken.Stranger:
		s.log.WithError(err).Warnf("it is not known whether another %s serves this node, and none can take over from this one", programName)
		return nil
	case errors.As(err, &taken) && !s.options.takeover:
		return fmt.Errorf("another %s serves this node (%v): end it first, or take over from it with --takeover", programName, takeover.Peer{Process: taken.Process})
	case err != nil:
		return fmt.Errorf("taking this node over: %w", err)
	case from != nil:
		s.log.Infof("taking over from %v, which serves the connections that it has to their end", from.Peer)
		if err := json.Unmarshal(from.State, &s.memory); err != nil {
			s.memory = proxy.Memory{}
			s.log.WithError(err).Warn("what it knew cannot be read: clients with affinity may come to other endpoints")
		}
		if err := s.memory.FitsBeside(s.options.meant.ports); err != nil {
			return fmt.Errorf("taking over from %v, which serves again: %w", from.Peer, err)
		}
	}
	return nil
}

// serve does what one process on a node does, until ctx ends, and then drains. Where
// another process takes over it yields; the connections that it has go on. Should
// that one end it does its work again.
func (s *server) serve(ctx context.Context) error {
	defer s.release()
	defer s.proxier.Close() // first: who comes next wants the ports
	for {
		next, err := s.serveNode(ctx)
		if err != nil || next == nil {
			return err
		}
		s.log.Infof("%v takes over: it has the clients that come from now on", next.Peer)
		if err := next.Yield(s.proxier.Yield()); err != nil {
			s.log.Warn(err)
		}
		if next.Regain(ctx) != nil {
			s.proxier.Drain(context.WithoutCancel(ctx)) // as long as it takes: the other one serves
			return nil
		}
		s.log.Warn("whoever had taken over is gone: serving this node again")
		s.redirect.forget()
		s.proxier.Regain()
		if s.status, err = status.Listen(s.statusConfig); err != nil {
			return err
		}
	}
}

// serveNode serves until ctx ends and the connections with it, or until another
// process takes over, and is that process. What shows the proxy to others, and
// answers those who ask to take over, goes on to the last.
func (s *server) serveNode(ctx context.Context) (next *takeover.Successor, err error) {
	err = together(context.WithoutCancel(ctx), s.status.Run, s.checks.Run,
		func(held context.Context) (err error) {
			next, err = s.successor(held)
			return err
		},
		func(held context.Context) error {
			ctx, cancel := either(ctx, held)
			defer cancel()
			err := together(ctx, s.reconcile, s.watchRules, s.firewall.run, s.writeEvents)
			limited, cancel := context.WithTimeout(held, s.options.drainTimeout)
			defer cancel()
			s.proxier.Drain(limited)
			return err
		})
	return next, err
}

func (s *server) reconcile(ctx context.Context) error {
	s.proxier.Reconcile(ctx)
	return nil
}

// successor waits for a process that asks to take over; nil: ctx has ended.
func (s *server) successor(ctx context.Context) (*takeover.Successor, error) {
	if s.hold == nil {
		<-ctx.Done()
		return nil, nil //nolint:nilnil // nobody can ask, and that is no error
	}
	return s.hold.Successor(ctx)
}

// release lets another process serve this node.
func (s *server) release() {
	if s.hold != nil {
		s.hold.Release()
	}
}
