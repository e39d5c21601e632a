//go:build unix

package swarm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"skerry/fleet"
)

// An edge has open: three files of its journal, a lock, a socket, and another socket while it dials.
// The rest of the process needs some more.
const (
	filesOfAnEdge = 6
	filesOfAll    = 256
)

// raiseFileLimit raises the process's limit of open files as far as so many edges need it. If it may not, the
// error says how many they need.
func raiseFileLimit(edges int) error {
	need := uint64(edges*filesOfAnEdge + filesOfAll)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= need {
		return nil
	}
	more := unix.Rlimit{Cur: need, Max: max(limit.Max, need)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &more); err != nil {
		return fleet.Errorf(fleet.CodeUnavailable, "open %d edges: they need %d files, %d are allowed", edges, need, limit.Cur).
			WithHint("raise the limit with ulimit -n, or use fewer edges")
	}
	return nil
}
