package etcd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/config/manifest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// mostProblems is how many problems are told. In an etcd whose values are all
// encrypted there is one for every key.
const mostProblems = 100

// state is what the keys say. It starts nothing and asks nobody.
type state struct {
	directories []directory
	decoder     decoder
	entries     map[string]*entry // by key
	bad         map[string]*entry // those with problems, which are few
}

// entry is what is known of one key.
type entry struct {
	in       place
	created  int64             // the revision that made the key; another one is another life
	sum      [sha256.Size]byte // of the newest value
	object   *manifest.Object  // the last good one; nil: there was none in this life
	problems []service.Problem // with the newest value
	stale    bool              // the newest value cannot be used, object is older
}

// newState knows nothing yet.
func newState(directories []directory) *state {
	return &state{directories: directories, decoder: newDecoder(), entries: map[string]*entry{}, bad: map[string]*entry{}}
}

// put takes a key's newest value and notes what has become of its object.
func (s *state) put(kv *mvccpb.KeyValue, to *delta) {
	key, sum := string(kv.Key), sha256.Sum256(kv.Value)
	d := s.directoryOf(key)
	in, valid := d.placeOf(key)
	old := s.entries[key]
	if old == nil {
		old = &entry{}
	}
	reborn := old.created != kv.CreateRevision // the key was deleted in between
	if old.sum == sum && (!old.stale || !reborn) {
		old.created = kv.CreateRevision
		return
	}
	e := &entry{in: in, created: kv.CreateRevision, sum: sum}
	s.entries[key] = e
	defer s.sort(key, e)
	if !valid {
		e.problems = []service.Problem{problemKey(d, key)}
		return
	}
	e.object, e.problems = s.decoder.decode(in, key, kv.Value)
	switch {
	case e.object != nil:
		to.come = append(to.come, e.object)
	case old.object != nil && reborn:
		to.gone = append(to.gone, in.object())
	case old.object != nil:
		e.object, e.stale = old.object, true
	}
}

// directoryOf is the directory of a key that was read or heard of.
func (s *state) directoryOf(key string) directory {
	i := slices.IndexFunc(s.directories, func(d directory) bool { return strings.HasPrefix(key, d.path) })
	return s.directories[i]
}

// remove takes a key's deletion.
func (s *state) remove(key string, to *delta) {
	if e := s.entries[key]; e != nil && e.object != nil {
		to.gone = append(to.gone, e.in.object())
	}
	delete(s.entries, key)
	delete(s.bad, key)
}

// sort puts a key with problems with the others.
func (s *state) sort(key string, e *entry) {
	if len(e.problems) > 0 {
		s.bad[key] = e
	} else {
		delete(s.bad, key)
	}
}

// replace takes a list of all keys: those that are not in it are gone. Objects
// whose values are the same stay the very same, so that listing again alters
// nothing for handlers.
func (s *state) replace(all []*mvccpb.KeyValue) {
	listed := make(map[string]bool, len(all))
	for _, kv := range all {
		listed[string(kv.Key)] = true
		s.put(kv, new(delta))
	}
	gone := func(key string, _ *entry) bool { return !listed[key] }
	maps.DeleteFunc(s.entries, gone)
	maps.DeleteFunc(s.bad, gone)
}

// objects are all that can be used.
func (s *state) objects() []*manifest.Object {
	var all []*manifest.Object
	for _, e := range s.entries {
		if e.object != nil {
			all = append(all, e.object)
		}
	}
	return all
}

// problems are those of all keys, in the order of keys, and no more than
// mostProblems.
func (s *state) problems() []service.Problem {
	var all []service.Problem
	for _, e := range s.bad {
		for _, p := range e.problems {
			if e.stale {
				if p.Advice != "" {
					p.Advice += "; "
				}
				p.Advice += "until then the object's last good state stays in use"
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, service.Problem.Compare)
	if more := len(all) - mostProblems; more > 0 {
		all = append(all[:mostProblems:mostProblems], service.Problem{
			Object: "etcd keys", Reason: all[mostProblems].Reason,
			Detail: fmt.Sprintf("%d more problems are not shown; %d keys have some", more, len(s.bad)),
		})
	}
	return all
}

func problemKey(d directory, key string) service.Problem {
	return service.Problem{
		Object: "etcd key " + printable(key), Reason: ReasonInvalidKey,
		Detail: "does not name a namespace and a name, so it holds no " + d.kind,
		Advice: "write the object to " + d.path + "NAMESPACE/NAME",
	}
}

// delta is what has become of objects. Of those that are gone only the names
// are known.
type delta struct {
	come, gone []*manifest.Object
}

// send tells of the delta as one change. It gives up when ctx ends.
func (d *delta) send(ctx context.Context, to config.Updates) bool {
	addedEndpoints, added := updates(config.ADD, d.come)
	removedEndpoints, removed := updates(config.REMOVE, d.gone)
	return to.Send(ctx, []config.EndpointsUpdate{addedEndpoints, removedEndpoints}, []config.ServiceUpdate{added, removed})
}

// updates are objects as an update for each channel.
func updates(op config.Operation, objects []*manifest.Object) (config.EndpointsUpdate, config.ServiceUpdate) {
	e, s := config.EndpointsUpdate{Op: op}, config.ServiceUpdate{Op: op}
	for _, o := range objects {
		switch {
		case o.Service != nil:
			s.Services = append(s.Services, o.Service)
		case o.Slice != nil:
			e.Slices = append(e.Slices, o.Slice)
		case o.Endpoints != nil:
			e.Endpoints = append(e.Endpoints, o.Endpoints)
		}
	}
	return e, s
}
