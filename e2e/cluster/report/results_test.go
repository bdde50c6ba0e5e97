package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const junit = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="Kubernetes e2e suite">
<testcase name="[BeforeSuite]"></testcase>
<testcase name="[It] [sig-network] Services should serve [Conformance]"></testcase>
<testcase name="[It] [sig-network] Services should refuse"><failure message="a | b&#xA;c"></failure></testcase>
<testcase name="[It] [sig-network] Services should wait"><error message="timed out"></error></testcase>
<testcase name="[It] [sig-network] Services should keep"><failure message="">[FAILED] lost it&#xA;In [It] at: x.go:1</failure></testcase>
<testcase name="[It] [sig-network] Services need SCTP"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>`

func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, proxy := range []string{"iptables", "kube-proxy-nftables", "nftables"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, proxy), 0o755))
	}
	write := func(proxy, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, proxy, "junit_01.xml"), []byte(text), 0o600))
	}
	write("nftables", junit)
	write("kube-proxy-nftables", `<testsuites><testsuite><testcase name="[It] [sig-network] Services should refuse"></testcase></testsuite></testsuites>`)
	doc := filepath.Join(t.TempDir(), "doc.md")
	require.NoError(t, run(dir, "v1.2.3", doc))
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	for _, want := range []string{
		"Kubernetes 1.2.3: ",
		"| userspace-proxy, nftables | 4 | 1 | 3 |\n| kube-proxy, nftables | 1 | 1 | 0 |\n\n",
		"| spec | userspace-proxy, nftables | kube-proxy, nftables |\n|---|---|---|\n",
		"| Services should refuse | **fail** | pass |\n",
		`| Services should serve \[Conformance\] | pass | – |` + "\n",
		`- Services should refuse, with userspace-proxy, nftables: a \| b c` + "\n",
		"- Services should keep, with userspace-proxy, nftables: lost it\n",
		"- Services should wait, with userspace-proxy, nftables: timed out\n",
	} {
		assert.Contains(t, string(text), want)
	}
	assert.NotContains(t, string(text), "SCTP |")

	write("iptables", "<testsuites>")
	assert.ErrorContains(t, run(dir, "v1.2.3", doc), "junit_01.xml: ")
}
