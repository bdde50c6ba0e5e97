package service

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPortRange(t *testing.T) {
	t.Parallel()
	r := PortRange{First: 10, Last: 12}
	assert.Equal(t, "10-12", r.String())
	for port, in := range map[uint16]bool{0: false, 9: false, 10: true, 11: true, 12: true, 13: false} {
		assert.Equal(t, in, r.Contains(port), port)
	}
	assert.False(t, PortRange{}.Contains(0), "zero has no port")
}
