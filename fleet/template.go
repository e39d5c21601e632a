package fleet

import (
	"time"
)

// What follows when a template, an identity or a token changes.
const (
	ChangeNoop    = "noop"
	ChangeSignal  = "signal"
	ChangeRestart = "restart"
	ChangeScript  = "script"
)

// Template is a file in a task's folder that is rendered from text and what the task
// may know.
type Template struct {
	SourcePath    string
	DestPath      string
	EmbeddedTmpl  string
	ChangeMode    string // default ChangeRestart
	ChangeSignal  string // of ChangeMode signal; default SIGHUP
	ChangeScript  *TemplateScript
	Once          bool
	Splay         time.Duration // default 5s
	Perms         string        // octal; default 0644
	Uid           *int
	Gid           *int
	LeftDelim     string // default {{
	RightDelim    string // default }}
	Envvars       bool
	VaultGrace    time.Duration
	Wait          *TemplateWait
	ErrMissingKey bool
	// MaxAge is how long the task may use the rendering while its edge hears of no hub; 0: as long as that takes. After it
	// the task gets MaxAgeSignal; "": it ends, and waits for a hub.
	MaxAge       time.Duration `json:",omitempty"`
	MaxAgeSignal string        `json:",omitempty"`
}

// TemplateScript is run in the task when a template changed.
type TemplateScript struct {
	Command          string
	Args             []string
	Timeout          time.Duration // default 5s
	FailOnError      bool
	RunOnFirstRender bool
}

// TemplateWait is how long a template waits for more changes.
type TemplateWait struct {
	Min *time.Duration
	Max *time.Duration
}
