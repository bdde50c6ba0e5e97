package tuning

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// asChild in the environment has the test binary make settings in the namespaces
// that it was started in, and print its faults.
const asChild = "TEST_TUNING"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	score := -999
	log, _ := logtest.NewNullLogger()
	for _, fault := range (Settings{OOMScoreAdj: &score, MaxPerCore: 1 << 24, TCPCloseWait: time.Hour}).Apply("/", 1, log) {
		fmt.Println(fault)
	}
}

// child makes the settings below other programs, in a network namespace of its
// own with connection tracking, and returns the faults and what a timeout is then.
func child(t *testing.T, around string) (faults []string, closeWait string) {
	t.Helper()
	nettest.Need(t, "unshare", "nft")
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("unshare", "--net", "--mount", "sh", "-ec", `
nft add table ip t; nft add chain ip t c '{ type filter hook input priority 0; }'; nft add rule ip t c ct state new accept
mount --make-rprivate /
`+around+` "$1"
cat /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait`, "sh", self)
	cmd.Env = append(os.Environ(), asChild+"=1", "GOCOVERDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// TestApply_kernel: the real files take it. Whether the score and the maximum can
// be set depends on the machine's kernel and rights.
func TestApply_kernel(t *testing.T) {
	t.Parallel()
	faults, closeWait := child(t, "")
	assert.Equal(t, "3600", closeWait)
	all := strings.Join(faults, "\n")
	assert.NotContains(t, all, "timeout")
	assert.Contains(t, all, "--conntrack-max-per-core: /sys/module/nf_conntrack/parameters/hashsize cannot be set to 4194304: operation not supported "+
		"(it takes root in the network namespace of the node: set it on the node, or say 0 here to leave it as it is)")
}

// TestApply_readOnlySys: /sys as containers have it.
func TestApply_readOnlySys(t *testing.T) {
	t.Parallel()
	faults, _ := child(t, "mount --bind /sys /sys; mount -o remount,bind,ro /sys;")
	assert.Contains(t, strings.Join(faults, "\n"), "--conntrack-max-per-core: /sys/module/nf_conntrack/parameters/hashsize cannot be set to 4194304: read-only file system "+
		"(the container sees it read-only: set it on the node, or say 0 here to leave it as it is)")
}

// TestApply_readOnly: /proc/sys as containers have it, and no right to be spared.
func TestApply_readOnly(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "setpriv")
	faults, closeWait := child(t, "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys\nsetpriv --bounding-set=-sys_resource --inh-caps=-sys_resource")
	assert.NotEqual(t, "3600", closeWait)
	all := strings.Join(faults, "\n")
	assert.Contains(t, all, "--oom-score-adj: /proc/self/oom_score_adj cannot be set to -999: permission denied (to lower it takes CAP_SYS_RESOURCE)")
	assert.Contains(t, all, "--conntrack-tcp-timeout-close-wait: /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait cannot be set to 3600: read-only file system (the container sees it read-only: set it on the node, or say 0 here to leave it as it is)")
}
