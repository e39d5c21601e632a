package fleet

import "time"

// Consumed is what a process has used since it began.
type Consumed struct {
	PID    int
	Start  uint64 // tells it from others that had its PID
	User   time.Duration
	System time.Duration
	RSS    uint64 // bytes that it has in memory now
	Swap   uint64
}
