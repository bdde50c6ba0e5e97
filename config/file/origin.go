package file

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/userspace-proxy/userspace-proxy/config/manifest"
)

const (
	// largest is how large a file may be, in bytes. 100,000 Services take less.
	largest = 64 << 20
	// settle is how long a file must have been left alone before it is read, so
	// that one that is being written is read once and whole.
	settle = 100 * time.Millisecond
	// blurred is how soon after a change a file's time and size may not tell of
	// the next one: file systems count time in steps of up to two seconds.
	blurred = 3 * time.Second
	// unanswered is how long something that is no true file may keep silent.
	unanswered = 2 * time.Second
	// longest is how long a change is waited out while others follow it.
	longest = 2 * time.Second
)

// unreadable is the reason of faults with a file as a whole; see manifest for
// those with its content.
const unreadable = "FileUnreadable"

// origin is one file, or standard input, and what was last read from it.
type origin struct {
	name  string // as people named it, or as it is called in a directory that they named
	under string // the path that they named
	real  string // without symbolic links: what is read, and read once whatever its names

	stamp   fs.FileInfo // of the content that was read; nil: read it again
	young   bool        // the stamp is too young to be relied on
	waiting fs.FileInfo // of a change that has not settled yet
	since   time.Time   // when it was first waited for
	away    bool        // the path that they named cannot be listed
	sum     [sha256.Size]byte

	objects []manifest.Object // the last good content
	faults  []*manifest.Fault // of the newest content; where there are some, objects are older
	trouble *manifest.Fault   // why the content could not be read at all; nil where it could
}

// refresh reads the file where it has changed. It says settled=false where the
// file seems to be in the middle of a change: look again after settle. With
// atOnce, at the start, nothing is waited for.
func (o *origin) refresh(now time.Time, node netip.Addr, atOnce bool) (settled bool) {
	info, err := os.Stat(o.name)
	if err != nil {
		o.trouble, o.stamp = o.troubleOf(err), nil
		return true
	}
	if trouble := o.unfit(info); trouble != nil {
		o.trouble, o.stamp = trouble, nil
		return true
	}
	if o.stamp != nil && same(o.stamp, info) && !o.young {
		o.waiting = nil
		return true
	}
	if !atOnce && !o.rests(now, info) {
		o.wait(now, info)
		return false
	}
	data, after, err := read(o.name)
	switch {
	case err != nil:
		o.trouble, o.stamp = o.troubleOf(err), nil
		return true
	case !atOnce && !same(info, after):
		o.wait(now, after)
		return false
	case len(data) > largest:
		o.trouble, o.stamp = o.tooLarge(), nil
		return true
	}
	o.trouble, o.waiting = nil, nil
	o.stamp, o.young = info, now.Sub(info.ModTime()).Abs() < blurred
	o.take(data, node)
	return true
}

// rests says whether nobody seems to be writing: the content is what was read,
// or the last change is some time ago, or, where clocks differ, it looks as it
// did last time. A file that is replaced without end is read at last as well.
func (o *origin) rests(now time.Time, info fs.FileInfo) bool {
	if o.stamp != nil && same(o.stamp, info) {
		return true
	}
	return now.Sub(info.ModTime()) >= settle ||
		o.waiting != nil && (same(o.waiting, info) || now.Sub(o.since) > longest)
}

func (o *origin) wait(now time.Time, info fs.FileInfo) {
	if o.waiting == nil {
		o.since = now
	}
	o.waiting = info
}

// take decodes content that is new.
func (o *origin) take(data []byte, node netip.Addr) {
	sum := sha256.Sum256(data)
	if sum == o.sum {
		return
	}
	o.sum = sum
	objects, faults := manifest.Decode(manifest.Input{Name: o.name, Data: data, Node: node})
	o.faults = faults
	if len(faults) == 0 {
		o.objects = objects
	}
}

// same says whether two looks at a file saw one content.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// read reads a file, and tells how it looked when its end was reached.
func read(name string) ([]byte, fs.FileInfo, error) {
	// It was a regular file a moment ago. To open a pipe that has taken its place
	// would wait for a writer, and all other files with it.
	f, err := os.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err := f.Stat(); err != nil {
		return nil, nil, fmt.Errorf("stat: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, nil, &irregularError{info.Mode()}
	}
	return readAll(f)
}

// readAll reads a file that is open.
func readAll(f *os.File) ([]byte, fs.FileInfo, error) {
	// What poses as a file and never has anything to say, like /proc/kmsg behind a
	// link, would be waited for without end. True files know no deadlines.
	_ = f.SetReadDeadline(time.Now().Add(unanswered))
	data, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("stat: %w", err)
	}
	return data, info, nil
}

// unfit says why something is not read that could be opened.
func (o *origin) unfit(info fs.FileInfo) *manifest.Fault {
	switch {
	case !info.Mode().IsRegular():
		return o.troubleOf(&irregularError{info.Mode()})
	case info.Size() > largest:
		return o.tooLarge()
	}
	return nil
}

func (o *origin) tooLarge() *manifest.Fault {
	return &manifest.Fault{
		File: o.name, Reason: unreadable, Detail: fmt.Sprintf("is larger than %d MiB", largest>>20),
		Advice: "divide it into several files in a directory",
	}
}

func (o *origin) troubleOf(err error) *manifest.Fault { return troubleOf(o.name, err) }

// troubleOf is why a path cannot be read.
func troubleOf(name string, err error) *manifest.Fault {
	f := &manifest.Fault{File: name, Reason: unreadable}
	var irregular *irregularError
	switch {
	case errors.As(err, &irregular):
		f.Detail, f.Advice = err.Error(), "give a file or a directory, or - for standard input"
	case errors.Is(err, fs.ErrNotExist):
		f.Detail, f.Advice = "does not exist", "give the path of a file or directory"
		if _, err := os.Lstat(name); err == nil {
			f.Detail, f.Advice = "is a symbolic link to nothing", "mend the link or remove it"
		}
	case errors.Is(err, fs.ErrPermission):
		f.Detail, f.Advice = "may not be read", "give the proxy's user the right to read it"
	default:
		// The path is said already; what remains is the operation and its reason.
		var at *fs.PathError
		if errors.As(err, &at) {
			err = fmt.Errorf("%s: %w", at.Op, at.Err)
		}
		f.Detail = "cannot be read: " + err.Error()
	}
	return f
}

// irregularError says that something is no regular file.
type irregularError struct{ mode fs.FileMode }

func (e *irregularError) Error() string { return "is " + typeOf(e.mode) + ", no regular file" }

func typeOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	default:
		return "something else"
	}
}
