package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const junit = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites time="61.7"><testsuite name="Kubernetes e2e suite">
<testcase name="[BeforeSuite]"></testcase>
<testcase name="[It] [sig-network] Services should serve [Conformance]"></testcase>
<testcase name="[It] [sig-network] Services should refuse"><failure message="a | b&#xA;c"></failure></testcase>
<testcase name="[It] [sig-network] Services should wait"><error message="timed out"></error></testcase>
<testcase name="[It] [sig-network] Services should keep"><failure message="">[FAILED] lost it&#xA;In [It] at: x.go:1</failure></testcase>
<testcase name="[It] [sig-network] Services should preserve source pod IP for traffic thru service cluster IP"><failure message="other"></failure></testcase>
<testcase name="[It] [sig-network] Services need SCTP"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>`

func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := sources{kubernetes: "v1.2.3", reports: filepath.Join(dir, "report"), churn: filepath.Join(dir, "churn")}
	write := func(text string, at ...string) {
		file := filepath.Join(append([]string{dir}, at...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	const refused = `<testsuites time="5"><testsuite><testcase name="[It] [sig-network] Services should refuse"></testcase></testsuite></testsuites>`
	write(junit, "report", "nftables", "junit_01.xml")
	write(refused, "report", "kube-proxy-nftables", "junit_01.xml")
	write(refused, "report", "nftables --transparent", "junit_01.xml")
	write(strings.ReplaceAll(refused, "refuse", "wait"), "report", "nftables", "again", "junit_01.xml")
	write("<", "report", "try", "junit_01.xml")
	doc := filepath.Join(t.TempDir(), "doc.md")
	read := func() string {
		require.NoError(t, run(from, doc))
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		return string(text)
	}
	text := read()
	for _, want := range []string{
		"Kubernetes 1.2.3: ",
		"| userspace-proxy, nftables | 5 | 2 | 3 | 1m7s |\n| userspace-proxy, nftables, --transparent | 1 | 1 | 0 | 5s |\n| kube-proxy, nftables | 1 | 1 | 0 | 5s |\n\n",
		"| spec | userspace-proxy, nftables | userspace-proxy, nftables, --transparent | kube-proxy, nftables |\n|---|---|---|---|\n",
		"| Services should refuse | **fail** | pass | pass |\n",
		`| Services should serve \[Conformance\] | pass | – | – |` + "\n",
		`- Services should refuse, with userspace-proxy, nftables: a \| b c` + "\n",
		"- Services should keep, with userspace-proxy, nftables: lost it\n",
		"with userspace-proxy, nftables: other — the backend sees the node's address",
		"| Services should wait | pass, run again | – | – |\n",
		"- Services should wait, with userspace-proxy, nftables, passed when it ran again, without others beside it; before: timed out\n",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "SCTP |")
	assert.NotContains(t, text, "Beyond")

	write(`{"during":"nothing","from":"outside","seconds":3,"short":{"tried":10,"lost":{"refused":1}}}
{"during":"nothing","from":"a pod","seconds":3,"short":{"tried":10,"lost":{"refused":1,"reset":2}},"long":{"tried":4,"lost":{"reset":1}}}
{"during":"much","from":"outside","seconds":3,"senders":{"tried":9}}
`, "churn", "nftables.json")
	write(`{"during":"much","seconds":3}`, "churn", "kube-proxy-nftables.json")
	write(`{`, "churn", "nftables.json.new")
	text = read()
	for _, want := range []string{
		"| meanwhile | lost | userspace-proxy, nftables | kube-proxy, nftables |\n",
		"| nothing | short connections | **4** of 20: 2 refused, 2 reset | – |\n|  | long connections | **1 reset** of 4 | – |\n",
		"| much | short connections | none of 0 | none of 0 |\n",
		"|  | datagrams of long senders | none of 9 | none of 0 |\n",
	} {
		assert.Contains(t, text, want)
	}

	write("{", "churn", "iptables.json")
	assert.ErrorContains(t, run(from, doc), "iptables.json: ")
	write("<testsuites>", "report", "iptables", "junit_01.xml")
	assert.ErrorContains(t, run(from, doc), "junit_01.xml: ")
}
