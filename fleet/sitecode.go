package fleet

import "time"

// Capabilities that a site code may have, as in a policy's block local.
const (
	SiteMayRead  = "read"  // look: status, logs, history, the audit
	SiteMayWrite = "write" // stop, start and restart, and change the store
	SiteMayExec  = "exec"  // run commands in tasks
)

// SiteCode is a short secret with which a person on site uses the local API of edges, also without a link. What it allows
// is what its policies say of local.
type SiteCode struct {
	ID             string // first group of the code; no secret
	Name           string // the person
	Site           string // the edges that take it: a site, or a glob
	NodePool       string // likewise; "*": all
	Policies       []string
	CreateTime     time.Time
	ExpirationTime time.Time
	RevokeTime     *time.Time `json:",omitempty"` // nil: it was not revoked
	CreateIndex    Index
	ModifyIndex    Index
}

// SiteCodeHash is what is kept of a code's secret: the hash of package internal/sitecode.
type SiteCodeHash struct {
	Salt   []byte
	Hash   []byte
	Rounds int
}

// IsValid reports whether the code was neither revoked nor has ended.
func (c *SiteCode) IsValid(now time.Time) bool {
	return c.RevokeTime == nil && now.Before(c.ExpirationTime)
}

// IsFor reports whether edges of a site and a node pool take the code.
func (c *SiteCode) IsFor(site, pool string) bool {
	return MatchGlob(c.Site, site) && MatchGlob(c.NodePool, pool)
}
