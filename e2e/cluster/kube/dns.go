package main

import (
	"context"
	"encoding/binary"
	"flag"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// zone is where the names of Services are (Kubernetes DNS-Based Service
// Discovery, version 1.1).
const zone = ".svc.cluster.local."

// names answers A, AAAA and CNAME questions for Services, headless ones and the
// pods behind them too.
type names struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

// runDNS answers over UDP and TCP until something fails.
func runDNS() error {
	kubeconfig := flag.String("kubeconfig", "", "the file with the API server and an account on it")
	at := flag.String("listen", ":53", "the address to answer at")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	n := &names{factory.Core().V1().Services().Lister(), factory.Discovery().V1().EndpointSlices().Lister()}
	factory.Core().V1().Services().Informer()
	factory.Discovery().V1().EndpointSlices().Informer()
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
	datagrams, err := net.ListenPacket("udp", *at)
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", *at)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- n.serveDatagrams(datagrams) }()
	go func() { failed <- n.serveStreams(streams) }()
	return <-failed
}

func (n *names) serveDatagrams(conn net.PacketConn) error {
	b := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFrom(b)
		if err != nil {
			return err
		}
		if answer := n.answer(b[:size]); answer != nil {
			_, _ = conn.WriteTo(answer, from) // who heard nothing asks again
		}
	}
}

func (n *names) serveStreams(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go n.serveStream(conn)
	}
}

// serveStream answers until the client has no more questions, or is silent.
func (n *names) serveStream(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		answer := n.answer(question)
		binary.BigEndian.PutUint16(size[:], uint16(len(answer)))
		if _, err := conn.Write(append(size[:], answer...)); err != nil || answer == nil {
			return
		}
	}
}

// answer is nil for what is no question.
func (n *names) answer(question []byte) []byte {
	var asked dnsmessage.Message
	if asked.Unpack(question) != nil || len(asked.Questions) != 1 {
		return nil
	}
	answer := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: asked.ID, Response: true, Authoritative: true, RecursionDesired: asked.RecursionDesired, RecursionAvailable: true,
		},
		Questions: asked.Questions,
	}
	name, kind := asked.Questions[0].Name, asked.Questions[0].Type
	addrs, alias, known := n.lookup(name)
	if !known {
		answer.RCode = dnsmessage.RCodeNameError
	}
	const mostAliases = 8
	for range mostAliases {
		target, err := dnsmessage.NewName(strings.TrimSuffix(alias, ".") + ".")
		if alias == "" || err != nil {
			break
		}
		answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header(name), Body: &dnsmessage.CNAMEResource{CNAME: target}})
		name = target
		addrs, alias, _ = n.lookup(name)
	}
	for _, addr := range addrs {
		switch {
		case addr.Is4() && kind == dnsmessage.TypeA:
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header(name), Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && kind == dnsmessage.TypeAAAA:
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header(name), Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func header(name dnsmessage.Name) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 1}
}

// lookup is what a name stands for: addresses, or another name.
func (n *names) lookup(name dnsmessage.Name) (addrs []netip.Addr, alias string, known bool) {
	inZone, ok := strings.CutSuffix(strings.ToLower(name.String()), zone)
	labelsOf := strings.Split(inZone, ".")
	if !ok || len(labelsOf) < 2 {
		return nil, "", false
	}
	before, service, namespace := labelsOf[:len(labelsOf)-2], labelsOf[len(labelsOf)-2], labelsOf[len(labelsOf)-1]
	s, err := n.services.Services(namespace).Get(service)
	switch {
	case err != nil:
		return nil, "", false
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, s.Spec.ExternalName, true
	case len(before) == 0 && s.Spec.ClusterIP != corev1.ClusterIPNone:
		return parsed(s.Spec.ClusterIPs), "", true
	}
	slices, err := n.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service}))
	if err != nil {
		return nil, "", false
	}
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready || s.Spec.PublishNotReadyAddresses
			meant := len(before) == 0 || e.Hostname != nil && *e.Hostname == before[len(before)-1]
			if ready && meant {
				addrs = append(addrs, parsed(e.Addresses)...)
			}
		}
	}
	return addrs, "", len(before) == 0 || len(addrs) > 0
}

func parsed(all []string) (addrs []netip.Addr) {
	for _, text := range all {
		if addr, err := netip.ParseAddr(text); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
