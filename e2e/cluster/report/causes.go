package main

import "strings"

// causes are why specs fail, where that is known: by a part of a spec's name.
func causes() []causeOf {
	address := func(proxy string) bool {
		return !strings.HasPrefix(proxy, kubeProxy) && !strings.Contains(proxy, "--transparent")
	}
	const node = "the backend sees the node's address instead of the client's, by the nature of a proxy; with `--transparent` it sees the client's"
	return []causeOf{
		{"preserve source pod IP for traffic thru service cluster IP", address, node},
		{"support externalTrafficPolicy=Local for type=NodePort", address, node},
		{"implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes", address, node},
		{
			"terminating endpoints when there are no ready endpoints", func(string) bool { return true },
			"the spec's backend ends by itself after 100 s, and on a machine that others use its rounds may take longer",
		},
	}
}

type causeOf struct {
	spec string
	with func(proxy string) bool
	text string
}

// because is a sentence's end; empty where the cause is not known.
func because(spec, proxy string) string {
	for _, c := range causes() {
		if strings.Contains(spec, c.spec) && c.with(proxy) {
			return " — " + c.text
		}
	}
	return ""
}
