package nettest

import (
	"bytes"
	"sync"
)

// Output is what a program has printed so far. It may be read while the program
// goes on. The zero value is ready.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write takes what it prints.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String is all of it.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
