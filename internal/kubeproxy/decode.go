package kubeproxy

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Configuration is a configuration file. A field's zero value means that the
// file leaves it to the default, as kube-proxy reads it.
type Configuration struct {
	v1alpha1.KubeProxyConfiguration
	// UDPIdleTimeout is what kube-proxy had for its userspace mode, until 1.26.
	UDPIdleTimeout metav1.Duration `json:"udpIdleTimeout"`
}

// New is a configuration that leaves everything to the defaults.
func New() *Configuration {
	c := new(Configuration)
	c.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("KubeProxyConfiguration"))
	return c
}

// idleField is the field that the published type no longer has.
const idleField = "udpIdleTimeout"

// Decode reads a configuration file. What a strict reading finds wrong with it,
// such as fields that are unknown or there twice, and a second reading passes
// over, is in lenient: kube-proxies of other ages wrote such files. An error
// says what is wrong with its form, and which forms there are.
func Decode(text []byte) (c *Configuration, lenient []string, err error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(text, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, one := range strict.Errors() {
			if !strings.HasSuffix(one.Error(), fmt.Sprintf("unknown field %q", idleField)) {
				lenient = append(lenient, one.Error())
			}
		}
		object, _, err = serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(text, nil, nil)
	}
	if err != nil {
		return nil, nil, reason(err)
	}
	read, ok := object.(*v1alpha1.KubeProxyConfiguration)
	if !ok {
		return nil, nil, fmt.Errorf("is a %T, not a KubeProxyConfiguration", object)
	}
	var older struct {
		UDPIdleTimeout metav1.Duration `json:"udpIdleTimeout"`
	}
	if err := yaml.Unmarshal(text, &older); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", idleField, err)
	}
	return &Configuration{KubeProxyConfiguration: *read, UDPIdleTimeout: older.UDPIdleTimeout}, lenient, nil
}

// reason is why a file cannot be read, in words for who wrote it.
func reason(err error) error {
	form := fmt.Sprintf("(apiVersion: %s, kind: KubeProxyConfiguration)", v1alpha1.SchemeGroupVersion)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err):
		return errors.New("has no apiVersion and kind " + form)
	case runtime.IsNotRegisteredError(err):
		return errors.New("is an object of another kind or version than is read here " + form)
	}
	return err
}

// Encode writes a configuration file that Decode reads.
func Encode(c *Configuration) ([]byte, error) { return yaml.Marshal(c) }
