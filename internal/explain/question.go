package explain

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Question is a packet: the first of a connection or flow.
type Question struct {
	Protocol service.Protocol
	To       netip.AddrPort
	From     netip.Addr // who sends it; not valid: anybody
}

// Parse reads a question as people write it: "tcp", "10.96.0.10:80", and the
// client's address or nothing.
func Parse(protocol, to, from string) (Question, error) {
	q := Question{Protocol: service.Protocol(strings.ToUpper(protocol))}
	if q.Protocol != service.TCP && q.Protocol != service.UDP {
		return q, fmt.Errorf("the protocol must be tcp or udp, got %q", protocol)
	}
	at, err := netip.ParseAddrPort(to)
	if err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
		hint := "names are not looked up"
		if i := strings.LastIndexByte(to, ':'); i > 0 {
			if a, err := netip.ParseAddr(to[:i]); err == nil && a.Is6() {
				hint = fmt.Sprintf("an IPv6 address stands in brackets: [%s]%s", to[:i], to[i:])
			}
		}
		return q, fmt.Errorf("%q is not an IP address and a port like 10.96.0.10:80 or [fd00::10]:80; %s", to, hint)
	}
	q.To = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if from == "" {
		return q, nil
	}
	client, err := netip.ParseAddr(from)
	if err != nil || client.Zone() != "" {
		return q, fmt.Errorf("--from: %q is not an IP address", from)
	}
	q.From = client.Unmap()
	if service.FamilyOf(q.From) != service.FamilyOf(q.To.Addr()) {
		return q, fmt.Errorf("--from: %s cannot send to %s: one is IPv4 and the other IPv6", q.From, q.To)
	}
	return q, nil
}

// Values are the question as it goes into a URL; ParseValues reads it there.
func (q Question) Values() url.Values {
	v := url.Values{"protocol": {q.Protocol.Lower()}, "to": {q.To.String()}}
	if q.From.IsValid() {
		v.Set("from", q.From.String())
	}
	return v
}

// ParseValues reads a question from a URL.
func ParseValues(v url.Values) (Question, error) {
	return Parse(v.Get("protocol"), v.Get("to"), v.Get("from"))
}

// String is the question in words: "TCP 10.96.0.10:80 from 192.0.2.1".
func (q Question) String() string {
	s := fmt.Sprintf("%s %s", q.Protocol, q.To)
	if q.From.IsValid() {
		s += " from " + q.From.String()
	}
	return s
}
