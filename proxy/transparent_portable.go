//go:build !linux || portable

package proxy

const dialsTransparently = false
