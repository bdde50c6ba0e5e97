package manifest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The checks here and in the files beside this one refuse what an API server
// would refuse, so that files and clusters cannot disagree about an object.
// What only a proxy refuses (a loopback endpoint, an address that two Services
// claim) is for config.Resolve, whatever source the object has.

const nameAdvice = "use lower case letters, digits and '-', beginning and ending with a letter or digit"

// checkMeta checks an object's names. Service names are labels of DNS, other
// names may hold dots.
func (c *cursor) checkMeta(m *metav1.ObjectMeta, dots bool) {
	at := top("metadata")
	if why, advice := wrongName(m, dots); why != "" {
		reason := ReasonInvalidValue
		if m.Name == "" {
			reason = ReasonMissingValue
		}
		c.fault(at.child("name"), reason, why, advice)
	}
	if len(validation.IsDNS1123Label(m.Namespace)) > 0 {
		c.fault(at.child("namespace"), ReasonInvalidValue, quoted(m.Namespace)+" cannot be a namespace", nameAdvice)
	}
}

// wrongName says why a name cannot be one; why is empty where it can.
func wrongName(m *metav1.ObjectMeta, dots bool) (why, advice string) {
	faults := validation.IsDNS1123Label
	if dots {
		faults = validation.IsDNS1123Subdomain
	}
	switch {
	case m.Name == "" && m.GenerateName != "":
		return "is missing; generateName needs an API server", "write a name"
	case m.Name == "":
		return "is empty", "write a name"
	case len(faults(m.Name)) > 0:
		return quoted(m.Name) + " cannot be a name", nameAdvice
	}
	return "", ""
}

const (
	highestPort = 65535
	portAdvice  = "use 1 to 65535"
)

func (c *cursor) checkPort(at *path, port int32) {
	if _, written := at.find(c.root); port == 0 && !written {
		c.fault(at, ReasonMissingValue, "is missing", portAdvice)
		return
	}
	if port < 1 || port > highestPort {
		c.fault(at, ReasonInvalidValue, strconv.Itoa(int(port))+" is no port number", portAdvice)
	}
}

func (c *cursor) checkProtocol(at *path, p corev1.Protocol) {
	switch p {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		c.fault(at, ReasonInvalidValue, quoted(string(p))+" is no protocol", "use TCP or UDP, in capitals")
	}
}

// checkPortName checks the name of a port; several ports need one each.
func (c *cursor) checkPortName(at *path, name string, several bool, seen map[string]bool) {
	switch {
	case name == "" && several:
		c.fault(at, ReasonMissingValue, "is missing", "name every port where there are several")
	case name != "" && len(validation.IsDNS1123Label(name)) > 0:
		c.fault(at, ReasonInvalidValue, quoted(name)+" cannot be a port's name", nameAdvice)
	case seen[name]:
		c.fault(at, ReasonInvalidValue, quoted(name)+" names an earlier port too", "give each port a name of its own")
	}
	seen[name] = true
}

// checkAddr reads an address; ok is false, with a fault, where it is none.
func (c *cursor) checkAddr(at *path, text string) (a netip.Addr, ok bool) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		c.fault(at, ReasonInvalidValue, quoted(text)+" is no IP address", addrAdvice(text))
	case a.Zone() != "":
		c.fault(at, ReasonInvalidValue, quoted(text)+" has a zone", "leave out %"+a.Zone())
	case a.Is4In6():
		c.fault(at, ReasonInvalidValue, quoted(text)+" is an IPv4 address in IPv6 form", "write "+a.Unmap().String())
	default:
		return a, true
	}
	return a, false
}

func addrAdvice(text string) string {
	if p, err := netip.ParseAddrPort(text); err == nil {
		return "write the address alone, " + p.Addr().String() + "; the port has a field of its own"
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return "write the address alone, " + p.Addr().String()
	}
	if trimmed := strings.TrimSpace(text); trimmed != text {
		if _, err := netip.ParseAddr(trimmed); err == nil {
			return "take out the space around it"
		}
	}
	return "write it like 10.96.0.10 or fd00::10; names are not looked up"
}

// checkOneOf checks a text that has few values; allowed[0] being "" allows none.
func checkOneOf[T ~string](c *cursor, at *path, value T, allowed ...T) {
	words := make([]string, 0, len(allowed))
	for _, a := range allowed {
		if value == a {
			return
		}
		if a != "" && strings.EqualFold(string(value), string(a)) {
			c.fault(at, ReasonInvalidValue, quoted(string(value))+" is no value of this field", "write "+string(a))
			return
		}
		if a != "" {
			words = append(words, string(a))
		}
	}
	c.fault(at, ReasonInvalidValue, quoted(string(value))+" is no value of this field", "use one of "+strings.Join(words, ", "))
}

func quoted(s string) string { return fmt.Sprintf("%.70q", s) }
