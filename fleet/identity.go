package fleet

import (
	"time"
)

// DefaultIdentity is the name of the identity that every task has, and
// DefaultAudience whom it is for.
const (
	DefaultIdentity = "default"
	DefaultAudience = "nomadproject.io"
)

// WorkloadIdentity is a signed token that says who a task or a service is.
type WorkloadIdentity struct {
	Name         string
	Audience     []string
	ChangeMode   string
	ChangeSignal string
	Env          bool
	File         bool
	Filepath     string
	ServiceName  string
	TTL          time.Duration
	ExtraClaims  []string
}
