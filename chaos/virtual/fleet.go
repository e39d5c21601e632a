package virtual

import "time"

// Fleet has properties of a fleet that a schedule's topology lacks, for the rehearsal of an
// existing fleet. Zero values are those of every other run.
type Fleet struct {
	// Meta and Attributes of nodes, by the edge's name.
	Meta, Attributes map[string]map[string]string
	// MinTTL and Grace of heartbeats and BackoffCap of edges; 0: the production defaults.
	MinTTL, Grace, BackoffCap time.Duration
	// CertValidity is the validity of edges' certificates; 0: a default so short that
	// they are renewed in every run.
	CertValidity time.Duration
}
