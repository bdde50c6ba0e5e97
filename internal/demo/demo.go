package demo

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/config/file"
)

//go:embed manifest/*.yaml
var manifest embed.FS

// Mortal is the backend that dies and comes back. Its endpoint is in a file of
// its own.
const (
	Mortal         = "web-3"
	comingAndGoing = "coming-and-going.yaml"
)

// Demo is the manifest and its backends.
type Demo struct {
	// Dir is where the manifest is, for the proxy to read.
	Dir string
	// Services are those of the manifest, in its order.
	Services []Service

	backends []*backend
}

// Service is a Service of the manifest, for people.
type Service struct {
	Name     string
	Addr     netip.AddrPort
	Protocol string // TCP or UDP
	Backends []string
	About    string
}

// Start writes the manifest and starts the backends. Where their addresses are
// in use, by another demo perhaps, it takes others. Whoever gets a Demo must
// Close it.
func Start() (*Demo, error) {
	var first error
	for _, network := range networks() {
		d, err := start(network)
		if err == nil {
			return d, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, fmt.Errorf("starting the demo: %w", first)
}

// networks are the address ranges to try, as the first three numbers of their
// addresses; where the system has a single loopback address, that one alone.
func networks() []string {
	l, err := net.Listen("tcp", "127.64.0.1:0")
	if err != nil {
		return []string{singleAddress}
	}
	_ = l.Close() // it was only tried
	var all []string
	for n := range 16 {
		all = append(all, fmt.Sprintf("127.64.%d.", n))
	}
	return all
}

// singleAddress in place of a network puts everything on one address.
const singleAddress = "127.0.0.1"

func start(network string) (*Demo, error) {
	dir, err := os.MkdirTemp("", "userspace-proxy-demo-")
	if err != nil {
		return nil, err // Start says what was tried
	}
	d := &Demo{Dir: dir}
	if err := d.fill(network); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// fill makes the manifest and what is in it.
func (d *Demo) fill(network string) error {
	if err := d.writeManifest(network); err != nil {
		return err
	}
	services, endpoints, _, err := file.Load(file.Options{Paths: []string{d.Dir}})
	if err != nil {
		return err
	}
	d.read(services, endpoints)
	for _, s := range d.Services {
		if err := s.free(); err != nil {
			return err
		}
	}
	for _, b := range d.backends {
		if err := b.start(); err != nil {
			return err
		}
	}
	return nil
}

func (d *Demo) writeManifest(network string) error {
	names, err := manifest.ReadDir("manifest")
	if err != nil {
		return err
	}
	for _, entry := range names {
		text, err := manifest.ReadFile("manifest/" + entry.Name())
		if err != nil {
			return err
		}
		if err := d.write(entry.Name(), inNetwork(string(text), network)); err != nil {
			return err
		}
	}
	return nil
}

// inNetwork moves a manifest's addresses.
func inNetwork(manifest, network string) string {
	if network == singleAddress {
		return regexp.MustCompile(`127\.64\.0\.\d+`).ReplaceAllString(manifest, network)
	}
	return strings.ReplaceAll(manifest, "127.64.0.", network)
}

// write replaces a file of the manifest in one step.
func (d *Demo) write(name, text string) error {
	next := filepath.Join(d.Dir, "."+name)
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(d.Dir, name))
}

// read makes Services and backends of what the manifest has.
func (d *Demo) read(services config.ServiceUpdate, endpoints config.EndpointsUpdate) {
	for _, svc := range services.Services {
		port := svc.Spec.Ports[0]
		s := Service{
			Name:     svc.Name,
			Addr:     netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), uint16(port.Port)),
			Protocol: string(port.Protocol),
			About:    svc.Annotations["description"],
		}
		for _, slice := range endpoints.Slices {
			if slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
				continue
			}
			for _, e := range slice.Endpoints {
				b := backendOf(port, slice, e)
				d.backends = append(d.backends, b)
				s.Backends = append(s.Backends, b.name)
			}
		}
		slices.Sort(s.Backends)
		d.Services = append(d.Services, s)
	}
	// The mortal one starts last: while that of another demo is dead, this one
	// finds the other's addresses taken before it comes to take the dead one's.
	i := d.mortal()
	b := d.backends[i]
	d.backends = append(slices.Delete(d.backends, i, i+1), b)
}

// mortal is the place of the backend that comes and goes.
func (d *Demo) mortal() int {
	return slices.IndexFunc(d.backends, func(b *backend) bool { return b.name == Mortal })
}

func backendOf(port corev1.ServicePort, slice *discoveryv1.EndpointSlice, e discoveryv1.Endpoint) *backend {
	b := &backend{
		name: e.TargetRef.Name,
		kind: kindTCP,
		addr: netip.AddrPortFrom(netip.MustParseAddr(e.Addresses[0]), uint16(*slice.Ports[0].Port)),
	}
	switch {
	case port.Protocol == corev1.ProtocolUDP:
		b.kind = kindUDP
	case port.AppProtocol != nil && *port.AppProtocol == string(kindHTTP):
		b.kind = kindHTTP
	}
	return b
}

// free says whether the proxy will be able to listen on the Service's address.
func (s Service) free() error {
	if s.Protocol == string(corev1.ProtocolUDP) {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.Addr))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	l, err := net.Listen("tcp", s.Addr.String())
	if err != nil {
		return err
	}
	return l.Close()
}

// Run has one backend die and come back, each after period, until ctx ends. It
// says what it does: the backend dies first, and only some time later is it
// taken for not ready, as with a real pod. In between the proxy finds it dead.
func (d *Demo) Run(ctx context.Context, period time.Duration, say func(string)) error {
	text, err := os.ReadFile(filepath.Join(d.Dir, comingAndGoing))
	if err != nil {
		return err
	}
	ready := string(text)
	notReady := strings.Replace(ready, "ready: true", "ready: false", 1)
	b := d.backends[d.mortal()]
	for {
		for _, act := range []struct {
			wait time.Duration
			do   func() error
			say  string
		}{
			{period, func() error { b.stop(); return nil }, b.name + " has died; connections move on to the others"},
			{period / 4, func() error { return d.write(comingAndGoing, notReady) }, b.name + " is taken for not ready, and is not tried any more"},
			{period - period/4, func() error { return errors.Join(b.start(), d.write(comingAndGoing, ready)) }, b.name + " is back"},
		} {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(act.wait):
			}
			if err := act.do(); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			say(act.say)
		}
	}
}

// Close ends the backends and removes the manifest.
func (d *Demo) Close() error {
	for _, b := range d.backends {
		b.stop()
	}
	return os.RemoveAll(d.Dir)
}
