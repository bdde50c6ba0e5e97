package service

import "errors"

// LeftOutError says that rules are as was asked for, but for some redirects
// which they cannot express. Those are left out, and all others are in force.
type LeftOutError struct {
	Err error // names every redirect that is left out, and why
}

// Error is what is left out, and why.
func (e *LeftOutError) Error() string { return e.Err.Error() }

// Unwrap is the error without what it means.
func (e *LeftOutError) Unwrap() error { return e.Err }

// Applied says whether rules are in force after an attempt to apply them that
// ended with err: nil, or a LeftOutError.
func Applied(err error) bool {
	var leftOut *LeftOutError
	return err == nil || errors.As(err, &leftOut)
}
