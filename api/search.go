package api

import (
	"skerry/fleet"
)

// SearchRequest is the body of both searches: Prefix is for the search of ids, Text for the fuzzy search. Context
// limits the kind of objects; "": all.
type SearchRequest struct {
	Prefix  string
	Text    string
	Context string
}

// SearchMeta has the fields about the hub that Nomad puts into a search's answer.
type SearchMeta struct {
	Index       fleet.Index
	LastContact int64
	KnownLeader bool
}

// FuzzyMatch is a name that a fuzzy search found, and the ids of the objects that contain it, the outermost first.
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
