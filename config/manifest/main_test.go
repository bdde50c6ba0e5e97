package manifest

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

// aService is a Service as people write it.
func aService(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\nspec:\n  clusterIP: %s\n  ports:\n  - port: 80\n", name, ip)
}

func aSlice(name, of string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s\n"+
		"  labels:\n    kubernetes.io/service-name: %s\naddressType: IPv4\nports:\n- port: 8080\n"+
		"endpoints:\n- addresses: [10.10.2.2]\n", name, of)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
