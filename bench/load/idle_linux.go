package load

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// openers is how many connections are opened, or asked, at once.
const openers = 64

// idle opens connections and has each echo a byte; what ready does then is done
// while they are held. After that they are asked again.
func (j Job) idle(ready func() error) (Result, error) {
	conns := make([]net.Conn, j.Flows)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	var result Result
	result.Held = count(conns, func(i int) bool {
		c, err := net.DialTimeout("tcp4", j.Addr.String(), patience)
		if err != nil {
			return false
		}
		conns[i] = c
		return echoes(c)
	})
	if err := ready(); err != nil {
		return Result{}, err
	}
	start := time.Now()
	result.Ops = count(conns, func(i int) bool { return conns[i] != nil && echoes(conns[i]) })
	result.Elapsed = time.Since(start)
	result.Errors = uint64(j.Flows) - result.Ops
	return result, nil
}

// count is for how many connections ok is true.
func count(conns []net.Conn, ok func(i int) bool) uint64 {
	var next, good atomic.Int64
	var wg sync.WaitGroup
	for range openers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(conns); i = int(next.Add(1)) - 1 {
				if ok(i) {
					good.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return uint64(good.Load())
}

func echoes(c net.Conn) bool {
	if c.SetDeadline(time.Now().Add(patience)) != nil {
		return false
	}
	b := []byte{'x'}
	if _, err := c.Write(b); err != nil {
		return false
	}
	_, err := io.ReadFull(c, b)
	return err == nil && b[0] == 'x'
}
