package apiserver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestSource_first(t *testing.T) {
	client := fake.NewClientset(aService("web", "10.96.0.1"), aSlice("web-1", "web", "10.1.0.1"), aNode("a"))
	f, _ := start(t, Options{Client: client, NodeName: "node-1"})
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")
	assert.Equal(t, []string{"SET endpoints more", "SET services"}, f.sequence())
	require.Len(t, f.toldNodes(), 1)
	_, err := client.CoreV1().Services("default").Create(context.Background(), aService("x", "10.96.0.2"), metav1.CreateOptions{})
	require.NoError(t, err)
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1", "Service default/x 10.96.0.2")
	require.NoError(t, client.CoreV1().Services("default").Delete(context.Background(), "web", metav1.DeleteOptions{}))
	f.shows(t, "EndpointSlice default/web-1 10.1.0.1", "Service default/x 10.96.0.2")
}
