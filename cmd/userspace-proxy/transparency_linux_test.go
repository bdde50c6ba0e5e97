package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTransparent_badUsage(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "services.yaml", aService)
	for says, flags := range map[string][]string{
		"--transparent: needs rules, which lead the replies here: give --redirect=nftables or iptables, or leave it out": {"--redirect=none"},
		"--transparent-mark: must have no bit in common with --mark":                                                     {"--mark=0x3", "--transparent-mark=0x2"},
		`--transparent-mark: must be a number from 1 to 0xffffffff, got "x"`:                                             {"--transparent-mark=x"},
	} {
		code, stdout, stderr := run(t, "", append([]string{"run", "--file", path, "--transparent"}, flags...)...)
		assert.Equal(t, 2, code)
		assert.Empty(t, stdout)
		assert.Equal(t, lines(says), stderr)
	}
}
