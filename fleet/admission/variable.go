package admission

import (
	"strings"

	"skerry/fleet"
)

// MaxVariableBytes bounds the keys and values of a variable together, as in Nomad.
const MaxVariableBytes = 64 << 10

// CheckVariablePath returns an error if a variable cannot have the path. The paths below "nomad" are reserved, except those
// that tasks read.
func CheckVariablePath(path string) error {
	invalid := func(why, hint string) error {
		return fleet.Errorf(fleet.CodeInvalid, "check the path %q of a variable: %s", path, why).WithHint("%s", hint)
	}
	if !fleet.IsName(path, 128, "-_~/") || strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.Contains(path, "//") {
		return invalid("it is not a valid path", "use 1 to 128 letters (a-z), digits, and the characters - _ ~ /, with no slash at the beginning, at the end, or beside another one")
	}
	parts := strings.Split(path, "/")
	if parts[0] != "nomad" {
		return nil
	}
	switch {
	case len(parts) == 1:
		return invalid("it is reserved", "variables of jobs are nomad/jobs, nomad/jobs/JOB, nomad/jobs/JOB/GROUP and nomad/jobs/JOB/GROUP/TASK")
	case parts[1] == "jobs", parts[1] == "job-templates" && len(parts) == 3:
		return nil
	case parts[1] == "job-templates":
		return invalid("it is reserved", "a job template has exactly one further part: nomad/job-templates/NAME")
	}
	return invalid("it is reserved", "below nomad there are only nomad/jobs and nomad/job-templates")
}

// CheckVariableItems returns an error if a variable cannot have the items.
func CheckVariableItems(path string, items fleet.VariableItems) error {
	if n := items.Size(); n > MaxVariableBytes {
		return fleet.Errorf(fleet.CodeInvalid, "check the variable %s: its keys and values have %d bytes, at most %d are allowed", path, n, MaxVariableBytes).
			WithHint("divide it into several variables")
	}
	if _, empty := items[""]; empty {
		return fleet.Errorf(fleet.CodeInvalid, "check the variable %s: one of its items has no name", path)
	}
	return nil
}

// CheckVariableLock fills in the defaults of a lock that is to be acquired, and returns an error if a variable cannot have
// it.
func CheckVariableLock(path string, l *fleet.VariableLock) error {
	if l.TTL == 0 {
		l.TTL = fleet.DefaultLockTTL
	}
	if l.LockDelay == 0 {
		l.LockDelay = fleet.DefaultLockDelay
	}
	invalid := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "lock the variable %s: "+format, append([]any{path}, args...)...)
	}
	switch {
	case l.TTL < fleet.MinLockTTL || l.TTL > fleet.MaxLockTTL:
		return invalid("its TTL is %s, allowed are %s to %s", l.TTL, fleet.MinLockTTL, fleet.MaxLockTTL)
	case l.LockDelay < 0 || l.LockDelay > fleet.MaxLockDelay:
		return invalid("its delay is %s, allowed is at most %s", l.LockDelay, fleet.MaxLockDelay)
	}
	return nil
}
