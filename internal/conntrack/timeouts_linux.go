package conntrack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// UDPTimeouts is how long an entry without traffic lives, as long as no reply
// has come and afterwards. Of that a kernel that has never tracked a
// connection knows nothing, which is an error.
func (Table) UDPTimeouts() (unanswered, answered time.Duration, err error) {
	if unanswered, err = seconds("nf_conntrack_udp_timeout"); err == nil {
		answered, err = seconds("nf_conntrack_udp_timeout_stream")
	}
	return unanswered, answered, err
}

// seconds reads one of the kernel's settings for connection tracking.
func seconds(name string) (time.Duration, error) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
	if err != nil {
		return 0, fmt.Errorf("reading a timeout of connection tracking: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("reading net.netfilter.%s: %w", name, err)
	}
	return time.Duration(n) * time.Second, nil
}
