package edged

import (
	"os"
	"runtime/debug"
	"time"
)

const (
	// startTime is the time after which the agent prefers little memory to speed. After a boot its tasks run again by then.
	startTime = 10 * time.Second
	// gcPercent makes the collector run when the heap has grown by half. The heap has about 3 MiB, so a run costs little.
	gcPercent = 50
)

// saveMemory makes the collector run more often than Go's default, unless the environment says how often.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
