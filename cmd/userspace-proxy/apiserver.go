package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/userspace-proxy/userspace-proxy/config/apiserver"
	"github.com/userspace-proxy/userspace-proxy/internal/events"
	"github.com/userspace-proxy/userspace-proxy/internal/node"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// sourceAPI is the name of the source that follows an API server.
const sourceAPI = "apiserver"

// apiOptions are the flags of the API server, and what they come to.
type apiOptions struct {
	kubeconfig, master string
	syncPeriod         time.Duration
	qps                float32
	burst              int32
	contentType        string

	config *rest.Config // nil: the API server is no source
}

// addFlags adds kube-proxy's flags for it.
func (a *apiOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.kubeconfig, "kubeconfig", "", "follow the Services of the API server that this `file` leads to; without any source a pod follows its cluster's")
	fs.StringVar(&a.master, "master", "", "follow the Services of the API server at this `url`, which wins over the kubeconfig's")
	fs.DurationVar(&a.syncPeriod, "config-sync-period", 15*time.Minute, "send all that is known of the API server on this often, without a change too")
	fs.Float32Var(&a.qps, "kube-api-qps", 5, "send the API server at most this `number` of requests a second, on average")
	fs.Int32Var(&a.burst, "kube-api-burst", 10, "send the API server at most this `number` of requests at once")
	fs.StringVar(&a.contentType, "kube-api-content-type", "application/vnd.kubernetes.protobuf", "speak this `type` of content with the API server")
}

// check tells what is wrong with the flags.
func (a *apiOptions) check(c *checks) {
	if a.syncPeriod <= 0 {
		c.check("--config-sync-period", fmt.Errorf("must be above 0, got %v", a.syncPeriod))
	}
	if !(a.qps > 0) || a.qps > math.MaxInt32 {
		c.check("--kube-api-qps", fmt.Errorf("must be above 0 and at most %d, got %v", math.MaxInt32, a.qps))
	}
	if a.burst <= 0 {
		c.check("--kube-api-burst", fmt.Errorf("must be above 0, got %d", a.burst))
	}
	c.check("--kube-api-content-type", apiserver.CheckContentType(a.contentType))
}

// named says whether a flag names the API server.
func (a *apiOptions) named() bool { return a.kubeconfig != "" || a.master != "" }

// connect finds out how to reach the API server, if it is a source: where a
// flag names one, and where there is no other source and this is a pod.
func (a *apiOptions) connect(c *checks, otherSource bool) {
	if !a.named() && otherSource {
		return
	}
	var err error
	a.config, err = apiserver.Connection{
		Kubeconfig: a.kubeconfig, Master: a.master,
		QPS: a.qps, Burst: int(a.burst), ContentType: a.contentType, UserAgent: userAgent(),
	}.Config()
	switch {
	case errors.Is(err, apiserver.ErrNotInCluster):
		c.add(errors.New(noSource + `, or --kubeconfig FILE, or --etcd-servers URL, or try "userspace-proxy demo"`))
	case a.kubeconfig != "":
		c.check("--kubeconfig", err)
	case a.master != "":
		c.check("--master", err)
	case err != nil:
		c.add(fmt.Errorf("this is a pod, but its cluster's API server cannot be reached: %w", err))
	}
}

// userAgent is how the API server's log and metrics name this program.
func userAgent() string {
	number, _, _ := strings.Cut(version(), " ")
	return fmt.Sprintf("%s/%s (%s/%s)", programName, number, runtime.GOOS, runtime.GOARCH)
}

// open makes the source. onNode is told of this machine's Node, and nodeLacks says
// what in it must be waited for.
func (a *apiOptions) open(facts node.Facts, log logrus.FieldLogger, nodeLacks func(*corev1.Node) string, onNode func(*corev1.Node)) (*apiserver.Source, error) {
	client, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		return nil, err
	}
	return apiserver.New(sourceAPI, apiserver.Options{
		Client: client, NodeName: facts.Name, NodeLacks: nodeLacks, OnNode: onNode, Resync: a.syncPeriod, Log: log.WithField("source", sourceAPI),
	})
}

// eventsOf writes Events to the API server that a source follows.
func (a *apiOptions) eventsOf(facts node.Facts, log logrus.FieldLogger) (*events.Recorder, error) {
	client, err := kubernetes.NewForConfig(a.config) // with limits of its own
	if err != nil {
		return nil, err
	}
	return events.New(events.Options{Client: client, Component: programName, Node: facts.Name, Log: log}), nil
}

// writeEvents writes Events until ctx ends, where this machine is a Node of an
// API server: one for the start, and one for each problem of a Service that is
// from there.
func (s *server) writeEvents(ctx context.Context) error {
	if s.events == nil {
		<-ctx.Done()
		return nil
	}
	return together(ctx, s.events.Run, func(ctx context.Context) error {
		var started sync.Once
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-look.C:
				if s.apiNode.Load() == nil { // a guest does not tell a cluster what is wrong with it
					continue
				}
				started.Do(func() {
					s.events.Started()
					for _, fault := range s.untuned {
						s.events.OnNode("CannotTuneNode", fault.Error())
					}
				})
				s.events.Problems(sorted(s.translator.problems(), s.proxier.Problems()), s.serviceWith)
			}
		}
	})
}

// serviceWith is the Service in the API server that has a problem; false: none
// there has it.
func (s *server) serviceWith(p service.Problem) (corev1.ObjectReference, bool) {
	if p.Service.Source != sourceAPI {
		return corev1.ObjectReference{}, false
	}
	svc := s.api.Service(p.Service.Namespace, p.Service.Name)
	if svc == nil {
		return corev1.ObjectReference{}, false
	}
	return corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID, ResourceVersion: svc.ResourceVersion,
	}, true
}

// onNode takes in what the API server says of this machine, or that it says
// nothing.
func (s *server) onNode(n *corev1.Node) {
	s.nodeWatch.heed(n)
	before := s.apiNode.Swap(n)
	if zoneOf(before) != zoneOf(n) || !slices.Equal(addrsOf(before), addrsOf(n)) || !slices.Equal(podCIDRsOf(before), podCIDRsOf(n)) {
		s.translator.again()
	}
}

// podCIDRsOf are the ranges of a Node's pods.
func podCIDRsOf(n *corev1.Node) []string {
	if n == nil {
		return nil
	}
	return append(slices.Clone(n.Spec.PodCIDRs), n.Spec.PodCIDR)
}

// zoneOf is a Node's zone; empty where there is none.
func zoneOf(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}
