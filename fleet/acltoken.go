package fleet

import (
	"slices"
	"time"
)

// Types of an ACLToken.
const (
	ACLTokenClient     = "client"     // it may do what its policies and roles allow
	ACLTokenManagement = "management" // it may do everything
)

// ACLToken is what a request shows to say who asks. The hubs keep only a hash of its secret: SecretID is set in the
// answer that creates the token, and in what its own bearer reads.
type ACLToken struct {
	AccessorID     string // a UUID, which is no secret
	SecretID       string
	Name           string
	Type           string
	Policies       []string
	Roles          []ACLTokenRole
	Global         bool // Nomad's: the token is known in all regions. A cluster is one region here
	CreateTime     time.Time
	ExpirationTime *time.Time `json:",omitempty"` // nil: never
	CreateIndex    Index
	ModifyIndex    Index
}

// RoleNames returns the names of the token's roles, sorted; nil: it has none.
func (t *ACLToken) RoleNames() []string {
	var names []string
	for _, link := range t.Roles {
		names = append(names, link.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ACLTokenRole is the link of a token to a role. Name is the role's at the time of reading.
type ACLTokenRole struct {
	ID   string
	Name string
}

// IsExpired tells whether the token has ended at a time.
func (t *ACLToken) IsExpired(now time.Time) bool {
	return t.ExpirationTime != nil && !now.Before(*t.ExpirationTime)
}
