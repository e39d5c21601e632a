package virtual

import "time"

// Fleet is what may be said of a fleet beside a schedule's topology: somebody's own
// fleet is rehearsed as it is. Zero values are those of every other run.
type Fleet struct {
	// Meta and Attributes of nodes, by the names of edges.
	Meta, Attributes map[string]map[string]string
	// MinTTL and Grace of heartbeats and BackoffCap of edges; 0: those of production.
	MinTTL, Grace, BackoffCap time.Duration
	// CertValidity is how long edges' certificates are valid; 0: so short that they
	// expire in most runs.
	CertValidity time.Duration
}
