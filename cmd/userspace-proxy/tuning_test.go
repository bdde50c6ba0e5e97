package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/tuning"
)

// TestTuning: kube-proxy's defaults are for nodes of clusters; elsewhere what was
// asked for is set, and nothing else.
func TestTuning(t *testing.T) {
	t.Parallel()
	score, asked := -999, -5
	for name, tt := range map[string]struct {
		cluster bool
		flags   []string
		want    tuning.Settings
	}{
		"nobody asks": {},
		"a node of a cluster": {cluster: true, want: tuning.Settings{
			OOMScoreAdj: &score, MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour,
		}},
		"somebody asks": {flags: []string{"--oom-score-adj=-5", "--conntrack-min=7", "--conntrack-udp-timeout=1m"}, want: tuning.Settings{
			OOMScoreAdj: &asked, MaxPerCore: 32768, Min: 7, UDP: time.Minute,
		}},
		"as it is": {cluster: true, flags: []string{
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0", "--conntrack-tcp-be-liberal",
		}, want: tuning.Settings{OOMScoreAdj: &score, Min: 131072, TCPBeLiberal: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o tuningOptions
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.addFlags(fs)
			require.NoError(t, fs.Parse(tt.flags))
			o.asked = fs.Changed
			assert.Equal(t, tt.want, o.settings(tt.cluster))
		})
	}
}

func TestTuning_faults(t *testing.T) {
	t.Parallel()
	code, _, stderr := run(t, "", "--file=-", "--oom-score-adj=-1001", "--conntrack-min=-1")
	assert.Equal(t, 2, code)
	assert.Equal(t, lines("--oom-score-adj: must be from -1000 to 1000, got -1001", "--conntrack-min: must not be below 0, got -1"), stderr)
}
