package proxy

import (
	"errors"
	"net/netip"
)

// Transparent says which dials are made from the client's own address, so that an
// endpoint sees it, and what must be so for the replies to come here.
type Transparent struct {
	// ShowsClient says whether a dial is one of them; nil: none is. It is called for
	// each connection and flow, by several goroutines at once.
	ShowsClient func(client, endpoint netip.Addr) bool
	// Mark is put on them beside Config.Mark, with which it has no bit in common.
	Mark uint32
}

func (t Transparent) validate(c *Config) error {
	switch {
	case t.ShowsClient == nil:
		return nil
	case !dialsTransparently:
		return errors.New("--transparent is for Linux: leave it out here")
	case c.Rules == nil:
		return errors.New("--transparent needs rules: leave it out, or have --redirect=nftables or iptables")
	case t.Mark == 0 || t.Mark&c.Mark != 0 || c.Mark == 0:
		return errors.New("--transparent-mark must be a bit, and another than that of --mark")
	}
	return nil
}

// sender is from where an endpoint is dialled: its zero value leaves the address
// to the kernel.
type sender struct {
	client netip.Addr
	mark   uint32 // 0: none
}

// senderOf is from where an endpoint is dialled for a client. What goes to this
// host itself goes by a plain dial always: it is known by its own address when it
// comes back (ownDials).
func (s *shared) senderOf(client, endpoint netip.Addr) sender {
	if show := s.transparent.ShowsClient; show != nil && client.Zone() == "" && !s.own.isHere(endpoint) && show(client, endpoint) {
		return sender{client.Unmap(), s.mark | s.transparent.Mark}
	}
	return sender{mark: s.mark}
}

// isClients says whether the address is the client's.
func (s sender) isClients() bool { return s.client.IsValid() }
