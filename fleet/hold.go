package fleet

import "slices"

// Hold says that somebody on site has stopped an allocation. It stays stopped, also over reboots and with a link,
// until somebody on site starts it again, or a newer version of the job overrules the stop (LocalControl.Until).
type Hold struct {
	By     string // the unix user; "": not known
	Reason string
	Since  int64 // UnixNano, the edge's wall clock: shown, never decided on
	// JobVersion is the version of the job that was stopped.
	JobVersion uint64
	// NoDelay skips every shutdown_delay.
	NoDelay bool `json:",omitempty"`
}

// String says who stopped it and why, for people.
func (h *Hold) String() string {
	text := "stopped on site"
	if h.By != "" {
		text += " by " + h.By
	}
	if h.NoDelay {
		text += " without its shutdown_delay"
	}
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}

// The actions that LocalControl may allow people on site.
const (
	LocalStop    = "stop"
	LocalStart   = "start"
	LocalRestart = "restart"
	LocalExec    = "exec"
)

// LocalActions are all actions that a local_control block may allow.
var LocalActions = []string{LocalStop, LocalStart, LocalRestart, LocalExec}

// Ends of a stop on site, for LocalControl.Until.
const (
	HoldUntilReleased    = "released"     // until somebody on site starts it again
	HoldUntilNextVersion = "next_version" // or until a newer version of the job comes
)

// LocalControl is the local_control block of a group, or of its job: it says what people on site may do.
type LocalControl struct {
	Allow []string // of LocalActions; empty: all
	Until string   // HoldUntilReleased or HoldUntilNextVersion; "": HoldUntilReleased
}

// LocalControlOf returns the local_control block of a group; without one the zero value, which allows everything.
func (j *Job) LocalControlOf(group string) LocalControl {
	if j == nil {
		return LocalControl{}
	}
	if g := j.Group(group); g != nil && g.LocalControl != nil {
		return *g.LocalControl
	}
	return LocalControl{}
}

// Allows reports whether people on site may do an action.
func (c LocalControl) Allows(action string) bool {
	return len(c.Allow) == 0 || slices.Contains(c.Allow, action)
}

// Overrules reports whether a version of this job ends a hold on an allocation of a group: a newer one does, if the
// job says so.
func (j *Job) Overrules(h *Hold, group string, version uint64) bool {
	return h != nil && version > h.JobVersion && j.LocalControlOf(group).Until == HoldUntilNextVersion
}
