package kubelog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// TestLead is the only test that logs by klog, for there is but one log of it.
func TestLead(t *testing.T) {
	log, hook := logtest.NewNullLogger()
	log.SetLevel(logrus.TraceLevel)
	t.Cleanup(func() {
		assert.NoError(t, Lead(log, 0))
		klog.ClearLogger()
	})
	background := func() klog.Logger { return klog.FromContext(context.Background()) }
	ref := klog.KRef("default", "web")
	everything := func() {
		klog.Info("plain info")
		klog.Warning("plain warning")
		klog.Warningf("plain %s] with brackets", "warning")
		klog.Error("plain error")
		klog.V(1).Info("plain verbose")
		klog.V(9).Info("never made")
		klog.InfoS("info", "service", ref)
		klog.ErrorS(errors.New("broken"), "error", "n", 1)
		klog.ErrorS(nil, "error without error")
		klog.V(2).InfoS("verbose", "odd")
		background().Info("contextual info")
		background().V(2).Info("contextual verbose")
		background().V(9).Info("never made")
		background().WithName("a").WithName("b").WithValues("k", "v").Error(nil, "contextual error")
		background().V(1).V(1).WithName("quiet").Info("offset")
	}
	for verbosity, want := range map[int][]string{
		0: {
			"info plain info", "warning plain warning", "warning plain warning] with brackets", "error plain error",
			"info info map[service:default/web]", "error error map[error:broken n:1]", "error error without error",
			"info contextual info", "error contextual error map[k:v logger:a.b]",
		},
		4: {
			// Nothing tells a plain verbose message from a plain one.
			"debug plain info", "warning plain warning", "warning plain warning] with brackets", "error plain error", "debug plain verbose",
			"info info map[service:default/web]", "error error map[error:broken n:1]", "error error without error",
			"debug verbose map[odd:(missing)]",
			"info contextual info", "debug contextual verbose", "error contextual error map[k:v logger:a.b]",
			"debug offset map[logger:quiet]",
		},
	} {
		require.NoError(t, Lead(log, verbosity))
		hook.Reset()
		everything()
		var got []string
		for _, e := range hook.AllEntries() {
			line := e.Level.String() + " " + e.Message
			if len(e.Data) > 0 {
				line += " " + fmt.Sprint(map[string]any(e.Data))
			}
			got = append(got, line)
		}
		assert.Equal(t, want, got, "at verbosity %d", verbosity)
	}
}

// TestLead_otherLog leads to another log than before.
func TestLead_otherLog(t *testing.T) {
	first, before := logtest.NewNullLogger()
	second, after := logtest.NewNullLogger()
	t.Cleanup(klog.ClearLogger)
	require.NoError(t, Lead(first, 0))
	klog.Warning("one")
	require.NoError(t, Lead(second, 0))
	klog.Warning("two")
	require.Len(t, before.AllEntries(), 1)
	require.Len(t, after.AllEntries(), 1)
	assert.Equal(t, "two", after.LastEntry().Message)
}
