package fleet

import "time"

// SiteAction is what somebody did on an edge itself, and what became of it: a line of the edge's audit. It has neither
// arguments of commands nor contents of files, as these may have secrets.
type SiteAction struct {
	Seq uint64 // numbers the actions of a chain from 1, without gaps
	// Chain names the edge's audit. An edge that has lost its files begins another one.
	Chain  string
	Time   time.Time // by the edge's wall clock
	Verb   string    // such as stop; SiteActionsLost for actions that a full disk took
	Object string    `json:",omitempty"` // the allocation, with its task
	User   string    `json:",omitempty"` // of the machine, at the other end of the socket
	UID    string    `json:",omitempty"` // that user's number
	Reason string    `json:",omitempty"` // that the user gave
	Code   Code      `json:",omitempty"` // of the error; "": it was done
	Lost   uint64    `json:",omitempty"`
	// Person and SiteCode are the name and the id of the site code that was given; "": none was.
	Person   string `json:",omitempty"`
	SiteCode string `json:",omitempty"`
	// Prev is the hash of the line before in the edge's audit; "": this is the first one.
	Prev string `json:",omitempty"`
}

// Verbs that stand for no action of a person.
const (
	SiteActionsLost  = "lost"          // of Lost actions that could not be written down
	SiteAuditDamaged = "audit damaged" // the audit before was set aside as Object
)

// Who returns the actor, as people read it.
func (a *SiteAction) Who() string {
	switch {
	case a.Person != "":
		return WithSiteCode(a.Person, a.SiteCode)
	case a.User == "" && a.UID == "":
		return "somebody"
	case a.User == "":
		return "uid " + a.UID
	}
	return a.User
}

// WithSiteCode names a person on site by the name and the id of a site code.
func WithSiteCode(person, code string) string { return person + " (site code " + code + ")" }
