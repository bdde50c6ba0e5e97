package config

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpdatesSend_marksAllButTheLastAsUnfinished(t *testing.T) {
	t.Parallel()
	services, endpoints := make(chan ServiceUpdate), make(chan EndpointsUpdate)
	to := Updates{Services: services, Endpoints: endpoints}
	for name, c := range map[string]struct {
		endpoints []EndpointsUpdate
		services  []ServiceUpdate
		want      []string
	}{
		"nothing":           {nil, nil, nil},
		"adds nothing":      {[]EndpointsUpdate{{Op: ADD}, {Op: REMOVE}}, []ServiceUpdate{{Op: ADD}, {Op: REMOVE}}, nil},
		"empty states":      {[]EndpointsUpdate{{Op: SET}}, []ServiceUpdate{{Op: SET}}, []string{"endpoints SET more", "services SET"}},
		"one of each list":  {[]EndpointsUpdate{{Op: ADD, Slices: slicesNamed("n/s of a")}}, []ServiceUpdate{{Op: REMOVE, Services: servicesNamed("n/a")}}, []string{"endpoints ADD more", "services REMOVE"}},
		"endpoints alone":   {[]EndpointsUpdate{{Op: ADD, Slices: slicesNamed("n/s of a")}, {Op: REMOVE, Endpoints: v1EndpointsNamed("n/a")}}, nil, []string{"endpoints ADD more", "endpoints REMOVE"}},
		"the last is empty": {nil, []ServiceUpdate{{Op: ADD, Services: servicesNamed("n/a")}, {Op: REMOVE}}, []string{"services ADD"}},
	} {
		var got []string
		sent := make(chan bool)
		go func() { sent <- to.Send(t.Context(), c.endpoints, c.services) }()
		for done := false; !done; {
			select {
			case u := <-services:
				got = append(got, "services "+string(u.Op)+map[bool]string{true: " more"}[u.More])
			case u := <-endpoints:
				got = append(got, "endpoints "+string(u.Op)+map[bool]string{true: " more"}[u.More])
			case done = <-sent:
				require.True(t, done)
			}
		}
		assert.Equal(t, c.want, got, name)
	}
}

func TestUpdatesSend_givesUpWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var nobody Updates // sends on nil channels wait for ever
	assert.False(t, nobody.Send(ctx, []EndpointsUpdate{{Op: SET}}, nil))
	assert.False(t, nobody.Send(ctx, nil, []ServiceUpdate{{Op: SET}}))
	assert.False(t, nobody.Tell(ctx, SourceStatus{Err: fmt.Errorf("away")}))
	assert.True(t, nobody.Send(ctx, nil, nil), "there is nothing to send")
}
