package local

import (
	"time"

	"skerry/edge/local"
)

// Summary is the first line of the status.
func Note(a local.Alloc, now time.Time) string { return allocNote(a, now) }

func Summary(s local.Status, now time.Time) string { return statusSummary(s, now) }
