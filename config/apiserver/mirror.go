package apiserver

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// mirror keeps a copy of a resource up to date and notes which objects have
// changed. What an object has become is read from the copy when the change is
// passed on, so that any number of changes in between are one.
type mirror struct {
	calls
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
	cancel   context.CancelFunc
	ended    chan struct{} // closed when everything that was started has ended

	noted   sync.Mutex
	changed map[string]struct{} // keys of objects
}

// follow starts a mirror. It runs until its parent's context ends or stop is
// called; either way wait for it by stop. told is called whenever there is
// something new to know; it must not block.
func follow(ctx context.Context, client kubernetes.Interface, r resource, told func()) (*mirror, error) {
	m := &mirror{
		calls:   calls{resource: r, told: told},
		ended:   make(chan struct{}),
		changed: map[string]struct{}{},
	}
	m.informer = cache.NewSharedIndexInformerWithOptions(m.listerWatcher(client), r.kind, cache.SharedIndexInformerOptions{
		ObjectDescription: r.name,
	})
	if err := m.informer.SetTransform(strip); err != nil {
		return nil, err
	}
	// The calls know it already, and of more.
	if err := m.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	var err error
	m.handler, err = m.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: m.note,
		UpdateFunc: func(before, after any) {
			if versionOf(before) != versionOf(after) { // else it was only listed again
				m.note(after)
			}
		},
		DeleteFunc: m.note,
	})
	if err != nil {
		return nil, err
	}
	ctx, m.cancel = context.WithCancel(ctx)
	go m.run(ctx)
	return m, nil
}

// run runs the informer until ctx ends.
func (m *mirror) run(ctx context.Context) {
	defer close(m.ended)
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		select {
		case <-m.handler.HasSyncedChecker().Done():
			m.told() // with an empty list nothing else would
		case <-ctx.Done():
		}
	})
	// What reflectors say of failures is said here once, so it is for debugging.
	m.informer.RunWithContext(klog.NewContext(ctx, klog.Background().V(1)))
}

// stop ends the mirror and waits for it.
func (m *mirror) stop() {
	m.cancel()
	<-m.ended
}

// synced says whether the first list is in and all of it has been noted.
func (m *mirror) synced() bool { return m.handler.HasSynced() }

// note notes that an object has come, changed or gone. One that is gone may be
// a cache.DeletedFinalStateUnknown: that it went was only seen by listing.
func (m *mirror) note(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return // the informer's own store has the same keys and said so
	}
	m.noted.Lock()
	m.changed[key] = struct{}{}
	m.noted.Unlock()
	m.told()
}

// take is the keys of what changed since the last call.
func (m *mirror) take() map[string]struct{} {
	m.noted.Lock()
	defer m.noted.Unlock()
	keys := m.changed
	m.changed = map[string]struct{}{}
	return keys
}

// versionOf is what tells two states of an object apart.
func versionOf(object any) (v struct {
	uid     types.UID
	version string
}) {
	if o, ok := object.(metav1.Object); ok {
		v.uid, v.version = o.GetUID(), o.GetResourceVersion()
	}
	return v
}

// objectsOf is every object of a mirror.
func objectsOf[T any](m *mirror) []T {
	list := m.informer.GetStore().List()
	objects := make([]T, len(list))
	for i, o := range list {
		objects[i] = o.(T)
	}
	return objects
}

// objectsBy is the objects that keys stand for as they are now, and for each
// that is gone one of which nothing is known but its name.
func objectsBy[T any](m *mirror, keys map[string]struct{}, named func(metav1.ObjectMeta) T) (there, gone []T) {
	for key := range keys {
		if o, ok, _ := m.informer.GetStore().GetByKey(key); ok {
			there = append(there, o.(T))
		} else if namespace, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
			gone = append(gone, named(metav1.ObjectMeta{Namespace: namespace, Name: name}))
		}
	}
	return there, gone
}
