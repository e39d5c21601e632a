package drivers

import (
	"strings"

	"skerry/fleet"
)

// signals are the signals that a job file may name, with Linux's numbers on the supported architectures.
var signals = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGUSR2": 12,
	"SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15, "SIGCONT": 18, "SIGSTOP": 19, "SIGTSTP": 20, "SIGTTIN": 21,
	"SIGTTOU": 22, "SIGURG": 23, "SIGWINCH": 28, "SIGIO": 29, "SIGSYS": 31,
}

// ParseSignal returns the number of a signal. It accepts "SIGHUP", "sighup" and "HUP"; "" means
// fleet.DefaultKillSignal.
func ParseSignal(name string) (int, error) {
	if name == "" {
		name = fleet.DefaultKillSignal
	}
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	if n, ok := signals[full]; ok {
		return n, nil
	}
	return 0, fleet.Errorf(fleet.CodeInvalid, "unknown signal %q", name).WithHint("use a name like SIGTERM or SIGHUP")
}
