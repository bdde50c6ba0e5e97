package apiserver

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// watch asks the server every now and then whether all is well, until ctx ends.
// Pings of HTTP/2 tell as much of a connection, but not every one has them, and
// none tells of a process that hangs, of rights that are revoked, or of another
// history.
func (s *Source) watch(ctx context.Context) {
	ticker := time.NewTicker(s.options.Check)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.check(ctx)
		}
	}
}

// silence is for how many periods of checks a request may bring nothing: three
// minutes. A server sends a bookmark about each minute where nothing else is to be
// told (KEP 956; defaultBookmarkFrequency in k8s.io/apiserver), so that is two of
// them missed. Pings find a lost connection and a process that hangs sooner where
// there is HTTP/2, which is with TLS: after 30 s without a frame, with 15 s to answer
// (SetTransportDefaults in k8s.io/apimachinery).
const silence = 6

// check asks for all that is followed at once.
func (s *Source) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Check/2)
	defer cancel()
	asked := time.Now()
	var all sync.WaitGroup
	for _, m := range s.mirrors() {
		all.Go(func() { m.look(ctx, m.informer.LastSyncResourceVersion(), silence*s.options.Check) })
	}
	all.Wait()
	s.mu.Lock()
	if s.synced() && s.failing() == nil {
		s.checked = asked
	}
	s.mu.Unlock()
	s.look()
}

// sendStatus says how the source is doing, where that is news. It gives up when
// ctx ends.
func (s *Source) sendStatus(ctx context.Context, to config.Updates) bool {
	s.mu.Lock()
	err := s.failing()
	if err == nil && s.delivered && s.checked.IsZero() {
		s.checked = time.Now()
	}
	now := config.SourceStatus{Err: err, Checked: s.checked}
	s.mu.Unlock()

	s.outage.Tell(err, s.delivered)
	if err == nil && !s.delivered && s.lacking != "" {
		now.Err = errors.New("waiting for the Node: " + s.lacking)
	}
	if now.Checked.Equal(s.said.Checked) && textOf(now.Err) == textOf(s.said.Err) {
		return true
	}
	s.said = now
	return to.Tell(ctx, now)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// failing is why what is known may be out of date; nil where it is not. Its
// caller holds mu.
func (s *Source) failing() error {
	var list faults
	list.add(s.services)
	if s.endpoints == nil { // else they are missed already
		list.add(s.slices)
	}
	list.add(s.endpoints)
	list.add(s.node)
	return list.err()
}

// faults is what is wrong, with the names of the resources.
type faults struct {
	texts []string
	names map[string][]string
	asked int
}

func (f *faults) add(m *mirror) {
	if m == nil {
		return
	}
	f.asked++
	err := m.failing()
	if err == nil {
		return
	}
	if f.names == nil {
		f.names = map[string][]string{}
	}
	text := explain(err)
	if f.names[text] == nil {
		f.texts = append(f.texts, text)
	}
	f.names[text] = append(f.names[text], m.name)
}

// err is one error for all. What is wrong with everything needs no names.
func (f *faults) err() error {
	if len(f.texts) == 0 {
		return nil
	}
	if names := f.names[f.texts[0]]; len(names) == f.asked {
		return errors.New(f.texts[0])
	}
	parts := make([]string, len(f.texts))
	for i, text := range f.texts {
		parts[i] = strings.Join(f.names[text], ", ") + ": " + text
	}
	return errors.New(strings.Join(parts, "; "))
}

// explain is what went wrong and, where somebody has to mend it, how.
func explain(err error) string {
	text := err.Error()
	var request *url.Error
	if errors.As(err, &request) { // its URL is long, and another one in every request
		text = request.Err.Error()
	}
	switch {
	case apierrors.IsForbidden(err):
		return text + " (bind the account to the cluster role system:node-proxier, or let it list and watch services, endpointslices and nodes)"
	case apierrors.IsUnauthorized(err):
		return text + " (the credentials are wrong or have expired)"
	}
	return text
}
