package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// watch says when to look at the files again: soon after a change in one of
// their directories, and every poll interval.
//
// It watches directories, never files: editors and ConfigMaps put a new file
// in an old one's place, and a watch on the old one would hear nothing more.
type watch struct {
	log     logrus.FieldLogger
	poll    *time.Ticker
	settle  *time.Timer
	changes *fsnotify.Watcher // nil where it cannot be made
	failed  bool              // a watch cannot be made, and that is said
	names   map[string]bool   // base names that matter beside those of sources
}

func newWatch(log logrus.FieldLogger, poll time.Duration) *watch {
	w := &watch{log: log, poll: time.NewTicker(poll), settle: time.NewTimer(settle)}
	w.settle.Stop()
	return w
}

// close ends the watch and waits for its goroutine.
func (w *watch) close() {
	w.poll.Stop()
	w.settle.Stop()
	if w.changes != nil {
		if err := w.changes.Close(); err != nil {
			w.log.WithError(err).Warn("closing the watch on files with Services")
		}
	}
}

// follow watches the directories that the paths and files need now. Where that
// cannot be done it says so once, tries again each time, and polling goes on.
// It says whether any of them was not watched before.
func (w *watch) follow(paths []string, origins []*origin) (added bool) {
	want := w.directories(paths, origins)
	if w.changes == nil {
		changes, err := fsnotify.NewWatcher()
		if err != nil {
			w.complain(err)
			return false
		}
		w.changes = changes
	}
	for _, directory := range w.changes.WatchList() {
		if !want[directory] {
			// It may be gone by itself, which is what is wanted.
			_ = w.changes.Remove(directory)
		}
		delete(want, directory)
	}
	ok := true
	for directory := range want {
		switch err := w.changes.Add(directory); {
		case err == nil:
			added = true
		case !errors.Is(err, os.ErrNotExist):
			ok = false
			w.complain(fmt.Errorf("%s: %w", directory, err))
		}
	}
	if ok && w.failed {
		w.failed = false
		w.log.Info("files with Services are watched again")
	}
	return added
}

func (w *watch) complain(err error) {
	if w.failed {
		return
	}
	w.failed = true
	advice := ""
	switch {
	case errors.Is(err, syscall.ENOSPC):
		advice = "; raise fs.inotify.max_user_watches"
	case errors.Is(err, syscall.EMFILE):
		advice = "; raise fs.inotify.max_user_instances or the limit of open files"
	}
	w.log.WithError(err).Warn("files with Services cannot be watched and are looked at now and then instead" + advice)
}

// directories are where a change of the files shows: where a file really is,
// and every directory in which a symbolic link leads there.
func (w *watch) directories(paths []string, origins []*origin) map[string]bool {
	want := map[string]bool{}
	w.names = map[string]bool{}
	for _, path := range paths {
		if path == Stdin {
			continue
		}
		w.way(path, want)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			want[realPath(path)] = true
		}
	}
	for _, o := range origins {
		if o.under != Stdin {
			want[filepath.Dir(o.real)] = true
			w.names[filepath.Base(o.real)] = true
		}
	}
	return want
}

// way adds the directory of a path that is named, and those of the links on
// the way to it.
func (w *watch) way(path string, want map[string]bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // no working directory; polling goes on
	}
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		info, err := os.Lstat(p)
		if p == path || err == nil && info.Mode()&os.ModeSymlink != 0 {
			want[realPath(filepath.Dir(p))] = true
			w.names[filepath.Base(p)] = true
		}
	}
}

// matters says whether a change can change what is read. Names that begin with
// ".." are the kubelet's.
func (w *watch) matters(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	return isSource(name) || strings.HasPrefix(name, "..") || w.names[name]
}

// wait returns true when it is time to look, and false when ctx ends. What has
// not settled is looked at again after the settling time at the latest.
func (w *watch) wait(ctx context.Context, settled bool) bool {
	if !settled {
		w.settle.Reset(settle)
	}
	var events chan fsnotify.Event
	var failures chan error
	if w.changes != nil {
		events, failures = w.changes.Events, w.changes.Errors
	}
	var first time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.poll.C:
			return true
		case <-w.settle.C:
			return true
		case e := <-events:
			if !w.matters(e) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			if time.Since(first) > longest {
				return true
			}
			w.settle.Reset(settle)
		case err := <-failures:
			// Events are lost, of the overflow of a queue for instance: look.
			w.log.WithError(err).Debug("watching files with Services")
			w.settle.Reset(settle)
		}
	}
}
