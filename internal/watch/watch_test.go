package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// looks is when Check was called, since the start.
func looks(t *testing.T, during time.Duration, changed func(now time.Duration) bool, checkTakes time.Duration, result error) (at []time.Duration, told int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		err := Rules{
			Changed: func() bool { return changed(time.Since(start)) },
			Check: func(context.Context) error {
				at = append(at, time.Since(start))
				time.Sleep(checkTakes)
				return result
			},
			CanaryPeriod: time.Second, CheckPeriod: 30 * time.Second,
		}.Watch(ctx, func(err error) {
			assert.Equal(t, result, err)
			told++
		})
		assert.NoError(t, err)
	})
	return at, told
}

func never(time.Duration) bool  { return false }
func always(time.Duration) bool { return true }

func TestChecksNowAndThen(t *testing.T) {
	t.Parallel()
	at, told := looks(t, 95*time.Second, never, 0, nil)
	assert.Equal(t, []time.Duration{30 * time.Second, 60 * time.Second, 90 * time.Second}, at)
	assert.Zero(t, told)
}

func TestCase31_ChecksWithinASecondOfAChange(t *testing.T) {
	t.Parallel()
	damage := errors.New("a rule is gone")
	at, told := looks(t, 20*time.Second, func(now time.Duration) bool { return now >= 5*time.Second && now < 6*time.Second }, 0, damage)
	assert.Equal(t, []time.Duration{5 * time.Second}, at)
	assert.Equal(t, 1, told)
}

func TestRestsWhereOthersChangeTheirRulesAllTheTime(t *testing.T) {
	t.Parallel()
	at, _ := looks(t, 29*time.Second, always, time.Second, nil)
	assert.Len(t, at, 6, "%v", at)
	for i := range at[1:] {
		assert.GreaterOrEqual(t, at[i+1]-at[i], 5*time.Second)
	}
}
