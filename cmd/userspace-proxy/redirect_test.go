package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// rulesFunc are rules in one function.
type rulesFunc func() error

func (f rulesFunc) SetLocalPods(service.LocalPods) {}

func (f rulesFunc) Forget() {}

func (f rulesFunc) Sync(context.Context, []service.Redirect) error { return f() }

// Rules of another kind are removed once ours are there. That this fails is
// told once and keeps nothing from being served.
func TestNodeRulesRemoveOthersOnce(t *testing.T) {
	t.Parallel()
	absent := errors.New("not installed")
	var tried []string
	kind := func(name string, err error) ruleKind {
		return ruleKind{name: name, absent: absent, cleanup: func(context.Context) error {
			tried = append(tried, name)
			return err
		}}
	}
	log, lines := test.NewNullLogger()
	fails := errors.New("no rules were written")
	r := &nodeRules{
		rules: rulesFunc(func() error { return fails }), log: log,
		others: []ruleKind{kind("good", nil), kind("bad", errors.New("no right to read")), kind("absent", fmt.Errorf("so: %w", absent))},
	}
	require.ErrorIs(t, r.Sync(t.Context(), nil), fails)
	assert.Empty(t, tried, "ours are not there yet")

	fails = &service.LeftOutError{Err: errors.New("one is left out")}
	require.ErrorIs(t, r.Sync(t.Context(), nil), fails)
	fails = nil
	require.NoError(t, r.Sync(t.Context(), nil))
	assert.Equal(t, []string{"good", "bad", "absent"}, tried)
	require.Len(t, lines.AllEntries(), 1)
	assert.Equal(t, "cannot find out whether an earlier run has left bad rules; `userspace-proxy cleanup` as root removes them", lines.LastEntry().Message)
	assert.EqualError(t, lines.LastEntry().Data[logrus.ErrorKey].(error), "no right to read")
}

// A stop meanwhile is no failed clean-up.
func TestNodeRulesStoppedWhileRemovingOthers(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	log, lines := test.NewNullLogger()
	r := &nodeRules{
		rules: rulesFunc(func() error { return nil }), log: log,
		others: []ruleKind{{name: "other", cleanup: func(ctx context.Context) error { stop(); return ctx.Err() }}},
	}
	require.NoError(t, r.Sync(ctx, nil))
	assert.Empty(t, lines.AllEntries())
	assert.Len(t, r.others, 1)
}
