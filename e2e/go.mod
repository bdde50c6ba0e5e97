module github.com/userspace-proxy/userspace-proxy/e2e

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/userspace-proxy/userspace-proxy v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/userspace-proxy/userspace-proxy => ../
