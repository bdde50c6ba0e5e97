package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// answerWithin is how long one request may take.
	answerWithin = 15 * time.Second
	// checkWithin is how long a check may take.
	checkWithin = 5 * time.Second
	// connectWithin is how long a server may take to accept a connection.
	connectWithin = 5 * time.Second
	// pingAfter and pongWithin find a connection that leads nowhere, to a server
	// that hangs or a network that drops packets. Servers refuse pings that come
	// more often than every 5 s.
	pingAfter  = 10 * time.Second
	pongWithin = 5 * time.Second
)

// client talks to one cluster and watches that it stays one: all that it
// returns is of one history, in which revisions only grow.
type client struct {
	*clientv3.Client
	cluster uint64 // its ID; 0 before the first answer
}

// connect makes a client. It says nothing of whether the servers are there, and
// whoever gets it must close it.
func (o *Options) connect() (*client, error) {
	encryption, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	connecting := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectWithin}
	connecting.Backoff.MaxDelay = longestWait
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            o.Servers,
		TLS:                  encryption,
		DialKeepAliveTime:    pingAfter,
		DialKeepAliveTimeout: pongWithin,
		PermitWithoutStream:  true,
		MaxUnaryRetries:      uint(len(o.Servers)), // each once; then Run tries again
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(connecting), grpc.WithChainUnaryInterceptor(failFast)},
		Logger:               zap.NewNop(), // what fails is returned, and told once
	})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &client{Client: c}, nil
}

// failFast has requests fail with the reason why no server can be reached, in
// place of waiting for one and then telling of nothing but the wait.
func failFast(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, request, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// close ends all connections.
func (c *client) close() {
	_ = c.Close() // says that its context is canceled, which is what Close is for
}

var (
	errOtherCluster = errors.New("the servers in --etcd-servers belong to different clusters: leave out those of the other one")
	errBackwards    = errors.New("the history of keys is another one than before, as after a restore from a backup")
)

// get reads keys at the head of history, or at opts' revision. It fails where
// the answer is of another cluster, or of a history shorter than known.
func (c *client) get(ctx context.Context, known int64, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), answerWithin)
	defer cancel()
	r, err := c.Get(ctx, key, opts...)
	if err != nil {
		return nil, err // explain puts it into words
	}
	if err := c.check(r.Header, known); err != nil {
		return nil, err
	}
	return r, nil
}

// check says what is wrong with where an answer comes from.
func (c *client) check(from *pb.ResponseHeader, known int64) error {
	if c.cluster == 0 {
		c.cluster = from.ClusterId
	}
	switch {
	case from.ClusterId != c.cluster:
		return errOtherCluster
	case from.Revision < known:
		return errBackwards
	}
	return nil
}

// watchStream opens a stream for watches on some server that has a leader.
//
// It is not a clientv3.Watcher, since that goes on by itself after a lost
// connection, at the next revision that it waits for. If the servers have been
// restored from a backup in the meantime, that skips what came to be in the new
// history up to that revision, and nobody is told.
func (c *client) watchStream(ctx context.Context) (pb.Watch_WatchClient, error) {
	return pb.NewWatchClient(c.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(math.MaxInt32))
}
