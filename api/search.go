package api

import (
	"skerry/fleet"
)

// SearchRequest is the body of both searches.
type SearchRequest struct {
	Prefix  string
	Text    string
	Context string
}

// SearchMeta is what Nomad's clients find in a search's answer itself.
type SearchMeta struct {
	Index       fleet.Index
	LastContact int64
	KnownLeader bool
}

// FuzzyMatch is a name, and the ids of what it is found in, the outermost first.
type FuzzyMatch struct {
	ID    string
	Scope []string `json:",omitempty"`
}

// SearchAnswer has the ids that begin with a prefix, by context.
type SearchAnswer struct {
	Matches     map[string][]string
	Truncations map[string]bool // contexts of which more ids were found than answered
	SearchMeta
}
