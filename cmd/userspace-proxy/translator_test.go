package main

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/healthport"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// moving is a node whose addresses come and go under a translator.
type moving struct {
	*translator
	logged *logtest.Hook

	mu   sync.Mutex
	here config.Node
	err  error
}

// move runs a translator, in a bubble of its own time, for a Service of both
// families with a node port.
func move(t *testing.T, test func(t *testing.T, m *moving)) {
	t.Helper()
	log, hook := logtest.NewNullLogger()
	proxier, err := proxy.New(proxy.Config{Log: log}) // that only takes what it is told
	require.NoError(t, err)
	defer proxier.Close()
	snapshot := config.Snapshot{Complete: true, Services: []config.Service{{Service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIPs: []string{"10.96.0.1", "fd96::1"}, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		},
	}}}}
	synctest.Test(t, func(t *testing.T) {
		m := &moving{logged: hook}
		m.has("192.0.2.1", "fd00::1")
		m.translator = &translator{
			node: m.node, current: func() config.Snapshot { return config.Snapshot{} }, know: func(config.Node, []service.Port) {},
			checks: healthport.New(nil, log), proxier: proxier, period: time.Hour, log: log, addrs: nodeAddrs{log: log},
		}
		m.OnUpdate(snapshot)
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, m.run(t.Context())) })
		t.Cleanup(running.Wait)
		test(t, m)
	})
}

func (m *moving) node() (config.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.here, m.err
}

// has gives the node other addresses, all of which have node ports.
func (m *moving) has(addrs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.here = config.Node{Primary: map[service.Family]netip.Addr{}}
	for _, text := range addrs {
		a := netip.MustParseAddr(text)
		if f := service.FamilyOf(a); !m.here.Primary[f].IsValid() {
			m.here.Primary[f] = a
		}
		m.here.Local = append(m.here.Local, a)
	}
	m.here.NodePortAddresses = m.here.Local
}

// fails has the node not be readable; nil: it is again.
func (m *moving) fails(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// awaitsNothing checks that the node is not looked at each second.
func (m *moving) awaitsNothing(t *testing.T) {
	t.Helper()
	m.translator.mu.Lock()
	defer m.translator.mu.Unlock()
	assert.False(t, m.addrs.awaited())
}

// serves checks where the Service is served.
func (m *moving) serves(t *testing.T, portals ...string) {
	t.Helper()
	resolution, _ := m.told()
	served := map[string]bool{}
	for _, port := range resolution.Ports {
		for _, portal := range port.Portals {
			served[portal.Addr.String()] = true
		}
	}
	want := map[string]bool{}
	for _, portal := range portals {
		want[portal] = true
	}
	assert.Equal(t, want, served)
}

// says checks what the log was told since the last time.
func (m *moving) says(t *testing.T, lines ...string) {
	t.Helper()
	var said []string
	for _, e := range m.logged.AllEntries() {
		said = append(said, e.Level.String()+" "+e.Message)
	}
	m.logged.Reset()
	assert.Equal(t, lines, said)
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestTranslator_addressComesBack: a family whose address goes for a moment is
// served all the time, whatever changes meanwhile, and as before when it is back.
func TestTranslator_addressComesBack(t *testing.T) {
	t.Parallel()
	move(t, func(t *testing.T, m *moving) {
		all := []string{"10.96.0.1:80", "[fd96::1]:80", "192.0.2.1:30080", "[fd00::1]:30080"}
		m.serves(t, all...)
		for range 3 {
			m.has("192.0.2.1")
			m.again()
			m.serves(t, all...)
			m.says(t, "warning this node has lost its IPv6 address fd00::1: going on with it for 1m0s, in case it comes back")
			after(30 * time.Second)
			m.again()
			m.serves(t, all...)
			m.has("192.0.2.1", "fd00::1", "fd00::2")
			after(2 * time.Second)
			m.serves(t, append(all, "[fd00::2]:30080")...)
			m.says(t, "info this node has its IPv6 address fd00::1 again")
			m.has("192.0.2.1", "fd00::1")
			m.again()
			m.serves(t, all...)
		}

		m.has() // both, as when a network is restarted
		m.again()
		m.serves(t, all...)
		m.has("192.0.2.1", "fd00::1")
		after(2 * time.Second)
		m.serves(t, all...)
		m.awaitsNothing(t)
	})
}

// TestTranslator_addressIsGone: it is not waited for for ever, nor looked for, and
// served as any that comes when it is there after all.
func TestTranslator_addressIsGone(t *testing.T) {
	t.Parallel()
	move(t, func(t *testing.T, m *moving) {
		m.has("192.0.2.1")
		m.again()
		m.fails(errors.New("not now"))
		after(addrPatience)
		m.serves(t, "10.96.0.1:80", "[fd96::1]:80", "192.0.2.1:30080", "[fd00::1]:30080")
		m.fails(nil)
		after(2 * time.Second)
		m.serves(t, "10.96.0.1:80", "192.0.2.1:30080")
		m.says(t,
			"warning this node has lost its IPv6 address fd00::1: going on with it for 1m0s, in case it comes back",
			"warning this node's IPv6 address fd00::1 has not come back in 1m0s, and is given up",
			"warning Node: this node has no IPv6 address, so the IPv6 addresses of Services are not served on it"+
				" (give the node an address of that family; without one nothing is lost but that family)")
		m.awaitsNothing(t)

		m.has("192.0.2.1", "fd00::1")
		m.again()
		m.serves(t, "10.96.0.1:80", "[fd96::1]:80", "192.0.2.1:30080", "[fd00::1]:30080")
	})
}

// TestTranslator_anotherAddress: one that is there in the place of another is taken
// at once, and given up as soon as the other is back.
func TestTranslator_anotherAddress(t *testing.T) {
	t.Parallel()
	move(t, func(t *testing.T, m *moving) {
		m.has("172.17.0.1", "fd00::1")
		m.again()
		m.serves(t, "10.96.0.1:80", "[fd96::1]:80", "172.17.0.1:30080", "[fd00::1]:30080")
		m.has("192.0.2.1", "172.17.0.1", "fd00::1")
		after(2 * time.Second)
		m.serves(t, "10.96.0.1:80", "[fd96::1]:80", "192.0.2.1:30080", "172.17.0.1:30080", "[fd00::1]:30080")
		m.says(t,
			"info this node's own IPv4 address is 172.17.0.1 now, and was 192.0.2.1",
			"info this node's own IPv4 address is 192.0.2.1 now, and was 172.17.0.1")
		after(addrPatience)
		m.awaitsNothing(t)
		m.says(t)

		// The one that has taken the place goes too.
		m.has("172.17.0.1", "fd00::1")
		m.again()
		m.has("fd00::1")
		after(2 * time.Second)
		m.serves(t, "10.96.0.1:80", "[fd96::1]:80", "172.17.0.1:30080", "[fd00::1]:30080")
		m.has("192.0.2.1", "fd00::1")
		after(2 * time.Second)
		m.serves(t, "10.96.0.1:80", "[fd96::1]:80", "192.0.2.1:30080", "[fd00::1]:30080")
	})
}
