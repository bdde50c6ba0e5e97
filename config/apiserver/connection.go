package apiserver

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ErrNotInCluster says that neither a kubeconfig nor a server was named, and
// that this process is not in a pod that is told of its cluster.
var ErrNotInCluster = rest.ErrNotInCluster

// Connection says how to reach an API server. With neither Kubeconfig nor
// Master it is the cluster's that this process is a pod of.
type Connection struct {
	Kubeconfig  string  // file with server, credentials and CA
	Master      string  // server's URL; wins over the kubeconfig's
	QPS         float32 // requests a second, on average; below 0 is no limit
	Burst       int     // requests at once
	ContentType string  // of requests and preferred for answers
	UserAgent   string
}

// Config is what clients of client-go are made from. An error names the file,
// but no flag.
func (c Connection) Config() (*rest.Config, error) {
	config, err := c.load()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = c.QPS, c.Burst
	config.ContentType = c.ContentType
	config.UserAgent = c.UserAgent
	config.WarningHandler = rest.NoWarnings{} // of deprecated kinds: it is said already where they are followed
	// What cannot work, such as a URL that is none, or a certificate that cannot
	// be read, shows here and not when the first request is made.
	_, err = rest.HTTPClientFor(config)
	if err == nil {
		_, _, err = rest.DefaultServerUrlFor(config)
	}
	if err != nil {
		return nil, c.failed(err)
	}
	return config, nil
}

func (c Connection) load() (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Master == "" {
		return rest.InClusterConfig()
	}
	// Not the deferred form, which takes the cluster's own configuration where
	// the file is empty and so serves another cluster than was asked for.
	file := clientcmdapi.NewConfig()
	if c.Kubeconfig != "" {
		var err error
		if file, err = clientcmd.LoadFromFile(c.Kubeconfig); err == nil {
			err = clientcmd.ResolveLocalPaths(file) // they are relative to the file
		}
		if err != nil {
			return nil, c.failed(unread(err))
		}
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{
		ClusterInfo: clientcmdapi.Cluster{Server: c.Master},
	}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("it has no current-context with a cluster, so no server is known: choose one with kubectl config use-context")
	}
	if err != nil {
		return nil, c.failed(err)
	}
	return config, nil
}

// unread is why a kubeconfig cannot be read, without its name.
func unread(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	if runtime.IsNotRegisteredError(err) {
		return errors.New("it is no kubeconfig, but an object of another kind")
	}
	return err
}

// CheckContentType says why a type of content cannot be spoken with an API
// server.
func CheckContentType(mediaType string) error {
	known := scheme.Codecs.SupportedMediaTypes()
	if _, ok := runtime.SerializerInfoForMediaType(known, mediaType); ok && mediaType != "" {
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.MediaType
	}
	return fmt.Errorf("must be one of %s, got %q", strings.Join(names, ", "), mediaType)
}

// failed is an error with the name of what is wrong.
func (c Connection) failed(err error) error {
	if c.Kubeconfig == "" {
		return fmt.Errorf("%q: %w", c.Master, err)
	}
	return fmt.Errorf("%s: %w", c.Kubeconfig, err)
}
