package api

import (
	"time"

	"skerry/fleet"
)

// JoinToken is a join token without its secret, of which hubs keep only a hash.
type JoinToken struct {
	ID          string
	Roles       []string // fleet.RoleHub, RoleEdge
	Description string
	NodePool    string     // of every edge that it admits; "": the edge names one
	Site        string     // likewise
	MaxUses     uint64     // 0: any number
	Uses        uint64     // machines that it admitted
	AllowedKeys int        `json:",omitempty"` // number of keys in its list; 0: it admits any key
	CreatedAt   time.Time  //
	ExpiresAt   *time.Time // nil: never
	// Admitted are the hubs ("hub:NAME") and edges ("edge:ID") that the token admitted. Lists leave it out.
	Admitted []string `json:",omitempty"`
}

// CreateTokenRequest creates a join token.
type CreateTokenRequest struct {
	Role        string // fleet.RoleHub or RoleEdge
	Description string
	NodePool    string
	Site        string
	MaxUses     uint64
	TTL         string // a duration; "": it never ends
	// AllowKeys are the SHA-256 hashes (hexadecimal) of the public keys of the edges that it admits; none: any key.
	AllowKeys []string `json:",omitempty"`
}

// CreatedToken is a new join token. Token has its secret, which no later answer shows.
type CreatedToken struct {
	JoinToken
	Token string
	Index fleet.Index
}
