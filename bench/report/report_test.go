package report

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata")

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 5}, 5},
		{[]float64{100, 1, 2, 3}, 2.5},
	} {
		assert.Equal(t, c.want, Median(c.values), "%v", c.values)
	}
	values := []float64{3, 1, 2}
	Median(values)
	assert.Equal(t, []float64{3, 1, 2}, values, "the argument stays as it is")
}

func TestSummarise(t *testing.T) {
	t.Parallel()
	samples := []Sample{{Rate: 90, Errors: 1}, {Rate: 120, Errors: 2}, {Rate: 100}}
	rate, ok := Rate.summarise(samples)
	assert.True(t, ok)
	assert.Equal(t, Summary{Value: 100, Spread: 0.15, Spreads: true}, rate)

	errors, ok := Errors.summarise(samples)
	assert.True(t, ok)
	assert.Equal(t, Summary{Value: 3}, errors, "errors are counted, not halved away")

	_, ok = CPU.summarise(samples)
	assert.False(t, ok)

	one, _ := Rate.summarise(samples[:1])
	assert.False(t, one.Spreads, "nobody knows the spread of one sample")
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		metric Metric
		value  float64
		want   string
	}{
		{Rate, 0, "0"},
		{Rate, 999.4, "999"},
		{Rate, 999.6, "1,000"},
		{Rate, 1234567.8, "1,234,568"},
		{Memory, -1234, "-1,234"},
		{CPU, 11.94, "11.9"},
		{CPUPerGB, 0.2, "0.200"},
	} {
		assert.Equal(t, c.want, c.metric.Format(c.value))
	}
}

// rowOf is a row in which each path has one sample of one metric.
func rowOf(m Metric, values map[string]float64) *Row {
	r := &Row{Samples: make(map[string][]Sample)}
	for path, v := range values {
		r.Samples[path] = []Sample{{m: v}}
	}
	return r
}

func TestTarget(t *testing.T) {
	t.Parallel()
	peers := []string{"a", "b"}
	for name, c := range map[string]struct {
		target    Target
		values    map[string]float64
		met, some bool
	}{
		"at least, above the better":   {Target{Rate, true, peers, 1.05}, map[string]float64{"us": 106, "a": 100, "b": 50}, true, true},
		"at least, above one only":     {Target{Rate, true, peers, 1.05}, map[string]float64{"us": 104, "a": 100, "b": 50}, false, true},
		"at least, exactly":            {Target{Rate, true, peers, 1}, map[string]float64{"us": 100, "a": 100, "b": 50}, true, true},
		"at most, below the better":    {Target{CPU, false, peers, 1}, map[string]float64{"us": 49, "a": 100, "b": 50}, true, true},
		"at most, below one only":      {Target{CPU, false, peers, 1}, map[string]float64{"us": 51, "a": 100, "b": 50}, false, true},
		"a part of one":                {Target{CPUPerGB, false, []string{"b"}, 0.4}, map[string]float64{"us": 0.39, "b": 1}, true, true},
		"a number":                     {Target{Memory, false, nil, 1024}, map[string]float64{"us": 1024}, true, true},
		"a number, missed":             {Target{Alive, true, nil, 9500}, map[string]float64{"us": 9499}, false, true},
		"a peer was not measured":      {Target{Rate, true, peers, 1}, map[string]float64{"us": 100, "a": 1}, false, false},
		"ours was not measured":        {Target{Rate, true, peers, 1}, map[string]float64{"a": 1, "b": 1}, false, false},
		"a peer got nothing through":   {Target{CPU, false, []string{"a"}, 1}, map[string]float64{"us": 1, "a": 0}, false, false},
		"none of ours, and none is ok": {Target{Allocs, false, nil, 0.01}, map[string]float64{"us": 0}, true, true},
	} {
		v := c.target.judge(rowOf(c.target.Metric, c.values), "us")
		assert.Equal(t, c.met, v.Met, name)
		assert.Equal(t, c.some, v.Known, name)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	r := Report{
		Paths: []string{"kernel", "HAProxy", "nginx", "ours"}, Ours: "ours", Peers: []string{"HAProxy", "nginx"},
		Facts: []Fact{{"processor", "a fast one"}, {"date", "2026-11-30"}},
		Rows: []Row{
			{
				Title: "Ping-pong", Note: "Back and forth.", After: "And again.", Columns: []Metric{Rate, P99, CPU, Errors},
				Targets: []Target{{Rate, true, []string{"HAProxy", "nginx"}, 1.05}, {CPU, false, []string{"HAProxy"}, 1}, {P99, false, nil, 10}},
				Samples: map[string][]Sample{
					"kernel":  {{Rate: 145000, P99: 300, Errors: 0}},
					"HAProxy": {{Rate: 59000, P99: 400, CPU: 11.9}, {Rate: 61000, P99: 410, CPU: 12.1}},
					"nginx":   {{Rate: 60500, P99: 390, CPU: 11.2}},
					"ours":    {{Rate: 70000, P99: 300, CPU: 12.0, Errors: 2}},
				},
			},
			{Title: "Idle", Columns: []Metric{Alive, Memory, Descriptors}, Targets: []Target{{Memory, false, nil, 1024}},
				Samples: map[string][]Sample{"HAProxy": {{Alive: 9500, Memory: 3200, Descriptors: 2}}}},
		},
	}
	got := r.Markdown()
	const file = "testdata/report.md"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
	assert.Equal(t, 1, r.Missed())
}

func TestSplice(t *testing.T) {
	t.Parallel()
	document := "# Benchmarks\n\nBy hand.\n" + Begin + "\nold\n" + End + "\n\nAlso by hand.\n"
	got, err := Splice(document, "\nnew\n\n")
	require.NoError(t, err)
	assert.Equal(t, "# Benchmarks\n\nBy hand.\n"+Begin+"\n\nnew\n\n"+End+"\n\nAlso by hand.\n", got)

	again, err := Splice(got, "new")
	require.NoError(t, err)
	assert.Equal(t, got, again)

	atTheEnd, err := Splice(Begin+"\n"+End, "new")
	require.NoError(t, err)
	assert.Equal(t, Begin+"\n\nnew\n\n"+End+"\n", atTheEnd)
}

// TestSplice_markers: what is written by hand is never lost to a bad marker.
func TestSplice_markers(t *testing.T) {
	t.Parallel()
	good := Begin + "\n" + End + "\n"
	for name, document := range map[string]string{
		"none":          "By hand.\n",
		"no end":        Begin + "\nby hand\n",
		"no begin":      "by hand\n" + End + "\n",
		"wrong order":   End + "\n" + Begin + "\n",
		"twice":         good + good,
		"begin twice":   Begin + "\n" + good,
		"end twice":     good + End + "\n",
		"not of a line": "The marker " + Begin + " is\n" + End + "\n",
	} {
		_, err := Splice(document, "new")
		assert.Error(t, err, name)
	}
}

// TestDocument: the repository's own document has its markers.
func TestDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/benchmarks.md")
	require.NoError(t, err)
	got, err := Splice(string(document), "new")
	require.NoError(t, err)
	assert.Less(t, strings.Index(got, Begin), strings.Index(got, End))
}
