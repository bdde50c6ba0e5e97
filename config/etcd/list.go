package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is how many keys are asked for at a time, so that no answer takes a
// server's time or memory for long.
const pageSize = 500

// list reads all directories as they were at one revision, which it returns.
func (c *client) list(ctx context.Context, directories []directory) (all []*mvccpb.KeyValue, revision int64, err error) {
	for _, d := range directories {
		for from := d.path; from != ""; {
			r, err := c.get(ctx, revision, from, clientv3.WithRange(d.end()), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
			if err != nil {
				return nil, 0, &readError{d.path, err}
			}
			if revision == 0 {
				revision = r.Header.Revision
			}
			all = append(all, r.Kvs...)
			from = ""
			if r.More {
				from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
			}
		}
	}
	return all, revision, nil
}

// head asks for the newest revision, and whether we may still read everything.
func (c *client) head(ctx context.Context, directories []directory, known int64) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	revision = known
	for _, d := range directories {
		r, err := c.get(ctx, revision, d.path, clientv3.WithRange(d.end()), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return 0, &readError{d.path, err}
		}
		revision = r.Header.Revision
	}
	return revision, nil
}

// readError is why a directory cannot be read.
type readError struct {
	path string
	err  error
}

func (e *readError) Error() string { return "reading " + e.path + ": " + e.err.Error() }
func (e *readError) Unwrap() error { return e.err }
