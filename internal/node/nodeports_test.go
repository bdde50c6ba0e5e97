package node

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestSelection(t *testing.T) {
	t.Parallel()
	facts := Facts{
		Primary: map[service.Family]netip.Addr{
			service.IPv4: netip.MustParseAddr("192.0.2.2"),
			service.IPv6: netip.MustParseAddr("fd00::2"),
		},
		Local: addrs("127.0.0.1", "169.254.77.1", "192.0.2.2", "198.51.100.7", "::1", "fd00::2", "fd00::3", "fe80::1"),
	}
	own := netip.MustParseAddr("169.254.77.1")

	for name, tt := range map[string]struct {
		values []string
		want   []string
	}{
		"by default the node's own": {nil, []string{"192.0.2.2", "fd00::2"}},
		"primary":                   {[]string{"primary"}, []string{"192.0.2.2", "fd00::2"}},
		"localhost":                 {[]string{"localhost"}, []string{"127.0.0.1", "::1"}},
		"all":                       {[]string{"all"}, []string{"127.0.0.1", "192.0.2.2", "198.51.100.7", "::1", "fd00::2", "fd00::3"}},
		"a range":                   {[]string{"198.51.100.0/24"}, []string{"198.51.100.7"}},
		"a range with host bits":    {[]string{" 198.51.100.9/24 "}, []string{"198.51.100.7"}},
		"one address":               {[]string{"fd00::3/128"}, []string{"fd00::3"}},
		"all of a family":           {[]string{"0.0.0.0/0"}, []string{"127.0.0.1", "192.0.2.2", "198.51.100.7"}},
		"several":                   {[]string{"localhost", "198.51.100.0/24", "primary"}, []string{"127.0.0.1", "192.0.2.2", "198.51.100.7", "::1", "fd00::2"}},
		"a range without addresses": {[]string{"203.0.113.0/24"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := ParseSelection(tt.values)
			require.NoError(t, err)
			assert.Equal(t, addrs(tt.want...), s.Of(facts, own))
		})
	}
}

func TestParseSelection_tellsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := ParseSelection([]string{"192.0.2.2", "all", "eth0"})
	require.Error(t, err)
	assert.ErrorContains(t, err, `"192.0.2.2" is neither a range of addresses like 192.0.2.0/24 nor primary, localhost or all`)
	assert.ErrorContains(t, err, `"eth0"`)
	assert.NotContains(t, err.Error(), `"all"`)
}
