package manifest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (c *cursor) checkSlice(s *discoveryv1.EndpointSlice) {
	c.checkMeta(&s.ObjectMeta, true)
	c.checkServiceLabel(s.Labels[discoveryv1.LabelServiceName])
	addressType := top("addressType")
	if s.AddressType == "" {
		c.fault(addressType, ReasonMissingValue, "is missing", "write IPv4 or IPv6")
	} else {
		checkOneOf(c, addressType, s.AddressType,
			discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	}
	names := map[string]bool{}
	for i := range s.Ports {
		p, at := &s.Ports[i], top("ports").item(i)
		c.checkPortName(at.child("name"), *p.Name, false, names)
		c.checkProtocol(at.child("protocol"), *p.Protocol)
		if p.Port != nil {
			c.checkPort(at.child("port"), *p.Port)
		}
	}
	for i := range s.Endpoints {
		at := top("endpoints").item(i).child("addresses")
		if len(s.Endpoints[i].Addresses) == 0 {
			c.fault(at, ReasonMissingValue, "is empty", "list the endpoint's address")
		}
		for j, text := range s.Endpoints[i].Addresses {
			c.checkSliceAddr(at.item(j), s.AddressType, text)
		}
	}
}

// checkServiceLabel checks what leads from a slice to its Service.
func (c *cursor) checkServiceLabel(name string) {
	at := top("metadata").child("labels").child(discoveryv1.LabelServiceName)
	switch {
	case name == "":
		c.fault(at, ReasonMissingValue, "is missing, so that nobody knows whose endpoints these are",
			"write the label with the name of the Service")
	case len(validation.IsDNS1123Label(name)) > 0:
		c.fault(at, ReasonInvalidValue, quoted(name)+" cannot be the name of a Service", nameAdvice)
	}
}

func (c *cursor) checkSliceAddr(at *path, of discoveryv1.AddressType, text string) {
	if of != discoveryv1.AddressTypeIPv4 && of != discoveryv1.AddressTypeIPv6 {
		return // FQDN, or a fault that is told already
	}
	if a, ok := c.checkAddr(at, text); ok && string(familyOf(a)) != string(of) {
		c.fault(at, ReasonInvalidValue, text+" is an "+string(familyOf(a))+" address, addressType says "+string(of),
			"put it into an EndpointSlice of its own")
	}
}

//nolint:staticcheck // see Object
func (c *cursor) checkEndpoints(e *corev1.Endpoints) {
	c.checkMeta(&e.ObjectMeta, false)
	for i := range e.Subsets {
		s, at := &e.Subsets[i], top("subsets").item(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			c.fault(at, ReasonMissingValue, "has neither addresses nor notReadyAddresses", "list an address")
		}
		for j := range s.Addresses {
			c.checkAddr(at.child("addresses").item(j).child("ip"), s.Addresses[j].IP)
		}
		for j := range s.NotReadyAddresses {
			c.checkAddr(at.child("notReadyAddresses").item(j).child("ip"), s.NotReadyAddresses[j].IP)
		}
		names := map[string]bool{}
		for j := range s.Ports {
			p, at := &s.Ports[j], at.child("ports").item(j)
			c.checkPortName(at.child("name"), p.Name, len(s.Ports) > 1, names)
			c.checkProtocol(at.child("protocol"), p.Protocol)
			c.checkPort(at.child("port"), p.Port)
		}
	}
}
