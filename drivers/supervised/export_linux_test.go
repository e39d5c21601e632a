package supervised

import (
	"syscall"

	"skerry/fleet"
)

// ParseStat reads a line of /proc/PID/stat.
func ParseStat(b []byte) (parent, session int, start uint64, err error) {
	s, err := parseStat(b)
	return s.parent, s.session, s.start, err
}

// ParseControlCommand reads a line of the control FIFO and writes it again.
func ParseControlCommand(line string) (string, error) {
	o, err := parseControlCommand(line)
	return o.formatLine(), err
}

// Alive reports whether the process of that pid and start runs.
func Alive(pid int, start uint64) bool { return identity{PID: pid, Start: start}.isAlive() }

// SignalProcess sends a signal to the process of that pid and start.
func SignalProcess(pid int, start uint64, sig syscall.Signal) error {
	return signalProcess(pid, start, sig)
}

// LastRuntimeError returns the last error in a runtime's log.
func LastRuntimeError(path string) string { return lastRuntimeError(path) }

// ExecProcess writes the process of a command beside the container of a bundle, and returns it.
func ExecProcess(bundle, path string, x fleet.Exec) error {
	process, err := (&Container{Bundle: bundle}).readProcess()
	if err != nil {
		return err
	}
	return writeExecProcess(path, process, x)
}

// RuntimeError returns the error of a runtime that ended with err, by its log and the space on the disk.
func RuntimeError(log string, err error, free int64) error { return runtimeError(log, err, free) }
