package tuning

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const tracking = netfilter + "nf_conntrack_"

// root is a file system with these numbers.
func root(t *testing.T, numbers map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, number := range numbers {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(number+"\n"), 0o644))
	}
	return dir
}

func number(t *testing.T, dir, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, path))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

func TestApply(t *testing.T) {
	t.Parallel()
	score := -999
	all := Settings{
		OOMScoreAdj: &score, MaxPerCore: 32768, Min: 131072,
		TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour, UDP: 31 * time.Second, UDPStream: 121 * time.Second, TCPBeLiberal: true,
	}
	dir := root(t, map[string]string{
		oomScore: "0", maximum: "65536", hashSize: "16384",
		tracking + "tcp_timeout_established": "432000", tracking + "tcp_timeout_close_wait": "60",
		tracking + "udp_timeout": "30", tracking + "udp_timeout_stream": "120", tracking + "tcp_be_liberal": "0",
	})
	log, said := logtest.NewNullLogger()
	assert.Empty(t, all.Apply(dir, 2, log))
	for path, want := range map[string]string{
		oomScore: "-999", maximum: "131072", hashSize: "32768",
		tracking + "tcp_timeout_established": "86400", tracking + "tcp_timeout_close_wait": "3600",
		tracking + "udp_timeout": "31", tracking + "udp_timeout_stream": "121", tracking + "tcp_be_liberal": "1",
	} {
		assert.Equal(t, want, number(t, dir, path), path)
	}
	require.Len(t, said.AllEntries(), 8)
	assert.Equal(t, "--conntrack-max-per-core: /sys/module/nf_conntrack/parameters/hashsize was 16384 and is 32768", said.AllEntries()[2].Message)
	assert.Equal(t, "--oom-score-adj: /proc/self/oom_score_adj was 0 and is -999", said.AllEntries()[0].Message)

	said.Reset()
	assert.Empty(t, all.Apply(dir, 2, log))
	assert.Empty(t, said.AllEntries(), "what is as it should be is left alone")

	assert.Empty(t, all.Apply(dir, 8, log))
	assert.Equal(t, "262144", number(t, dir, maximum), "more cores, more connections")
	assert.Equal(t, "65536", number(t, dir, hashSize))
	assert.Empty(t, all.Apply(dir, 2, log))
	assert.Equal(t, "262144", number(t, dir, maximum), "it is never lowered")
	assert.Equal(t, "65536", number(t, dir, hashSize))
}

func TestApply_nothing(t *testing.T) {
	t.Parallel()
	dir := root(t, map[string]string{maximum: "1", oomScore: "0", tracking + "tcp_timeout_established": "1"})
	log, said := logtest.NewNullLogger()
	assert.Empty(t, Settings{Min: 131072}.Apply(dir, 2, log), "without a number for each core the least is not looked at")
	assert.Equal(t, "1", number(t, dir, maximum))
	assert.Empty(t, said.AllEntries())

	assert.Empty(t, Settings{UDP: time.Second}.Apply(dir, 2, log))
	assert.Equal(t, "--conntrack-udp-timeout: there is no /proc/sys/net/netfilter/nf_conntrack_udp_timeout here, so nothing to set", said.LastEntry().Message)
}

// TestApply_faults: one that cannot be made keeps the others from nothing.
func TestApply_faults(t *testing.T) {
	t.Parallel()
	dir := root(t, map[string]string{maximum: "many", tracking + "tcp_timeout_close_wait": "60"})
	log, said := logtest.NewNullLogger()
	faults := Settings{MaxPerCore: 1, TCPCloseWait: time.Hour}.Apply(dir, 1, log)
	require.Len(t, faults, 1)
	assert.Equal(t, `--conntrack-max-per-core: /proc/sys/net/netfilter/nf_conntrack_max cannot be set to 1: /proc/sys/net/netfilter/nf_conntrack_max: strconv.Atoi: parsing "many": invalid syntax`, faults[0].Error())
	assert.Equal(t, faults[0].Error(), said.AllEntries()[0].Message)
	assert.Equal(t, "3600", number(t, dir, tracking+"tcp_timeout_close_wait"))
}
