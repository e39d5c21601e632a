package local

import (
	"strings"
	"time"

	"skerry/cmd/console"
	"skerry/edge/local"
)

// Note is the last column of an allocation in the status.
func Note(a local.Alloc, now time.Time) string { return allocNote(a, now) }

// StatusText is the output of local status, with all of local status --all, and with copies of local status --verbose.
func StatusText(s local.Status, all, copies bool, now time.Time) string {
	var text strings.Builder
	writeStatus(&console.Output{Writer: &text}, s, all, copies, now)
	return text.String()
}

// Summary is the first line of the status.
func Summary(s local.Status, now time.Time) string { return statusSummary(s, now) }
