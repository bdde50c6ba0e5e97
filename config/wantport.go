package config

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

const portAdvice = "write a number from 1 to 65535"

// readPorts reads spec.ports. A port that cannot be served is left out, its
// siblings are not.
func (r *resolver) readPorts(w *want) {
	served := make(map[service.PortName]int, len(w.svc.Spec.Ports)) // to the index of the port
	for i := range w.svc.Spec.Ports {
		sp := &w.svc.Spec.Ports[i]
		protocol, ok := r.readProtocol(w, i, sp)
		if !ok {
			continue
		}
		p := &wantPort{
			index: i,
			name:  service.PortName{Namespace: w.name.Namespace, Name: w.name.Name, Port: sp.Name, Protocol: protocol},
		}
		if p.port, ok = portNumber(sp.Port); !ok {
			r.reportService(w, portField(i, "port"), ReasonInvalidPort,
				fmt.Sprintf("%d is not a port number; the port is not served", sp.Port), portAdvice)
			continue
		}
		if same, twice := served[p.name]; twice {
			r.reportService(w, portField(i, "name"), ReasonDuplicatePort,
				fmt.Sprintf("%q is the name of spec.ports[%d] too, which is served instead", sp.Name, same),
				"give each port a name of its own")
			continue
		}
		p.nodePort = r.readNodePort(w, i, sp)
		served[p.name] = i
		w.ports = append(w.ports, p)
	}
}

// readProtocol reads the protocol of a port. False: it cannot be served.
func (r *resolver) readProtocol(w *want, i int, sp *corev1.ServicePort) (service.Protocol, bool) {
	switch sp.Protocol {
	case "", corev1.ProtocolTCP:
		return service.TCP, true
	case corev1.ProtocolUDP:
		return service.UDP, true
	case corev1.ProtocolSCTP:
		r.reportService(w, portField(i, "protocol"), ReasonUnsupportedProtocol,
			"SCTP is not supported; the port is not served", "reach the endpoints directly, or use TCP or UDP")
	default:
		r.reportService(w, portField(i, "protocol"), ReasonInvalidProtocol,
			fmt.Sprintf("%q is no protocol; the port is not served", sp.Protocol), "write TCP or UDP")
	}
	return "", false
}

// readNodePort reads the node port of a port; 0 is none.
func (r *resolver) readNodePort(w *want, i int, sp *corev1.ServicePort) uint16 {
	if sp.NodePort == 0 {
		return 0
	}
	if !hasNodePorts(w.svc.Spec.Type) {
		r.reportService(w, portField(i, "nodePort"), ReasonInvalidNodePort,
			"is not served: a Service of this type has no node ports", "set spec.type to NodePort, or remove the field")
		return 0
	}
	n, ok := portNumber(sp.NodePort)
	if !ok {
		r.reportService(w, portField(i, "nodePort"), ReasonInvalidNodePort,
			fmt.Sprintf("%d is not a port number; the port is served without one", sp.NodePort), portAdvice)
	}
	return n
}

// portNumber is a port number as the network knows it. False: it is none.
func portNumber(n int32) (uint16, bool) {
	if n < 1 || n > 65535 {
		return 0, false
	}
	return uint16(n), true
}
