// Package manifest reads Services, EndpointSlices and Endpoints as people and
// programs write them down: YAML and JSON, many documents, List kinds, and the
// first service proxy's own form.
//
// It owns the way from bytes to objects: decoding, the defaults that an API
// server would fill in, the checks that it would make, and a message for
// everything that can be wrong, with line, object and field. Sources share it.
// It opens nothing.
package manifest
