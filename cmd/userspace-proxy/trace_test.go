package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/proxy"
)

func TestParseTraced(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]proxy.Traced{
		"service=web":           {Name: "web"},
		"service=shop/web":      {Namespace: "shop", Name: "web"},
		"service=shop/web:http": {Namespace: "shop", Name: "web", Port: "http"},
		"service=web:http":      {Name: "web", Port: "http"},
	} {
		got, err := parseTraced(text)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for text, why := range map[string]string{
		"web":                    `; got "web"`,
		"pod=web":                `; got "pod=web"`,
		"service=":               `got "service=": name "": `,
		"service=/web":           `namespace "": `,
		"service=shop/":          `name "": `,
		"service=shop/web:":      `port "": `,
		"service=shop/web/http":  `name "web/http": `,
		"service=Shop/Web":       `namespace "Shop": `,
		"service=shop/web:80:81": `port "80:81": `,
	} {
		_, err := parseTraced(text)
		assert.ErrorContains(t, err, why, text)
		assert.ErrorContains(t, err, "must be service=NAMESPACE/NAME, or with :PORT", text)
	}
}
