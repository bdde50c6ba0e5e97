package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTakeover_badUsage(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "services.yaml", aService)
	code, stdout, stderr := run(t, "", "run", "--file", path, "--takeover", "--redirect=none")
	assert.Equal(t, 2, code)
	assert.Empty(t, stdout)
	assert.Equal(t, lines("--takeover: needs rules, which lead clients to one process or the other: give --redirect=nftables or iptables, or leave it out"), stderr)
}
