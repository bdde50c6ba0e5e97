package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/healthport"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// translator stands between ServiceConfig and Proxier: it resolves each
// snapshot for this node and hands over what is to be served. It also says in
// the log what is served and what stands in the way, whenever that changes.
type translator struct {
	node    func() (config.Node, error)
	current func() config.Snapshot            // newest, with what sources say about themselves
	others  []func() []service.Problem        // problems that others know of
	know    func(config.Node, []service.Port) // is told what the Proxier is, before it
	checks  *healthport.Server
	proxier *proxy.Proxier
	period  time.Duration // after which the node's addresses are looked at again
	way     string
	log     logrus.FieldLogger
	acted   chan struct{}       // capacity 1: the Proxier has reconciled
	synced  chan struct{}       // closed when the Proxier has done it for the first time
	took    func(time.Duration) // is told how long after it was wanted each change was in force

	mu         sync.Mutex // guards what follows
	known      bool       // there is a snapshot
	snapshot   config.Snapshot
	on         config.Node
	addrs      nodeAddrs // that have just gone from it
	resolution config.Resolution
	updated    time.Time // when the Proxier was last told; zero before the first time
	changes    changes
}

func newTranslator(s *server) *translator {
	return &translator{
		node: s.node, current: s.services.Snapshot, proxier: s.proxier, others: []func() []service.Problem{s.firewall.problems, s.checks.Problems},
		checks: s.checks, know: s.know,
		period: s.options.syncPeriod, way: s.redirect.way, log: s.log,
		acted: make(chan struct{}, 1), synced: make(chan struct{}),
		took:    func(d time.Duration) { s.programming.Observe(d.Seconds()) },
		addrs:   nodeAddrs{log: s.log},
		changes: changes{since: s.started},
	}
}

// OnUpdate is called by ServiceConfig, once the gate lets it.
func (t *translator) OnUpdate(s config.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.snapshot, t.known = s, true
	t.changes.note(s)
	t.translate()
}

// again resolves the last snapshot for the addresses that the node has now.
func (t *translator) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known {
		t.translate()
	}
}

// await resolves again where an address of the node has come back, or is given up.
func (t *translator) await() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.addrs.awaited() {
		return
	}
	on, err := t.node()
	if err != nil {
		return // translate will say so
	}
	if on = t.addrs.heed(on, t.on); !reflect.DeepEqual(on, t.on) {
		t.tell(on)
	}
}

// translate resolves and tells the Proxier. Its caller holds mu.
func (t *translator) translate() {
	on, err := t.node()
	if err != nil {
		if t.updated.IsZero() {
			t.log.WithError(err).Error("cannot serve anything yet, trying again at the next sync period")
			return
		}
		t.log.WithError(err).Warn("going on with the addresses known before")
		t.tell(t.on)
		return
	}
	t.tell(t.addrs.heed(on, t.on))
}

// tell tells the Proxier what is to be served on a node. Its caller holds mu.
func (t *translator) tell(on config.Node) {
	s := t.snapshot
	s.Problems = nil // they are shown as the sources have them now, see problems
	t.on, t.resolution = on, config.Resolve(s, on)
	t.updated = time.Now()
	t.know(on, t.resolution.Ports)
	t.proxier.SetLocalPods(on.LocalPods)
	t.proxier.Update(t.resolution.Ports, t.resolution.Complete)
	t.checks.Set(t.resolution.Checks, on.NodePortAddresses)
}

// hasActed is called by the Proxier after each reconcile.
func (t *translator) hasActed() {
	select {
	case t.acted <- struct{}{}:
	default:
	}
}

// told is what the Proxier was last told, and for which node.
func (t *translator) told() (config.Resolution, config.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.resolution, t.on
}

// hasTold says whether the Proxier has been told anything.
func (t *translator) hasTold() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.updated.IsZero()
}

// isDone says whether the Proxier has done what it was last told.
func (t *translator) isDone() bool {
	t.mu.Lock() // so that nothing is told between the question and the answer
	defer t.mu.Unlock()
	now := t.proxier.Progress()
	if now.Pending || t.updated.IsZero() {
		return false
	}
	t.changes.done(now.Synced, t.took)
	return true
}

// counted are the changes of Services and of endpoints so far.
func (t *translator) counted() (services, endpoints changeCount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changes.services, t.changes.endpoints
}

// problems are those of sources, of Services, of health check ports and of this
// node's firewall. The Proxier has its own, and logs them itself.
func (t *translator) problems() []service.Problem {
	resolution, _ := t.told()
	lists := [][]service.Problem{t.current().Problems, resolution.Problems}
	for _, other := range t.others {
		lists = append(lists, other())
	}
	return sorted(lists...)
}

// sorted are problems put together, each once.
func sorted(lists ...[]service.Problem) []service.Problem {
	all := slices.Concat(lists...)
	slices.SortFunc(all, service.Problem.Compare)
	return slices.Compact(all)
}

// run resolves again every sync period and keeps the log up to date, until ctx
// ends.
func (t *translator) run(ctx context.Context) error {
	again := time.NewTicker(t.period)
	defer again.Stop()
	look := time.NewTicker(time.Second) // sources tell of their problems without an update
	defer look.Stop()
	diary := diary{log: t.log}
	var first sync.Once
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			t.again()
		case <-look.C:
			t.await()
			diary.problems(t.problems())
		case <-t.acted:
			if !t.isDone() {
				continue // it will act again
			}
			diary.problems(t.problems())
			resolution, _ := t.told()
			diary.serving(resolution.Ports, t.summary(t.proxier.Status()))
			first.Do(func() { close(t.synced) })
		}
	}
}

// summary is what is served now, in one line.
func (t *translator) summary(now proxy.Status) string {
	resolution, _ := t.told()
	unserved := map[portalAt]bool{}
	for _, p := range now.Ports {
		for _, portal := range p.Portals {
			if portal.State == proxy.StateUnserved {
				unserved[portalAt{p.Name, portal.Addr}] = true
			}
		}
	}
	served := countOf(resolution.Ports, func(p portalAt) bool { return !unserved[p] }).String()
	if t.way == redirectNone {
		served += " without rules"
	} else {
		served += " through " + t.way
	}
	if n := len(sorted(t.problems(), now.Problems)); n > 0 {
		served += fmt.Sprintf("; %s, see /statusz", count(n, "problem"))
	}
	return "serving " + served
}
