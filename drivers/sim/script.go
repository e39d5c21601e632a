package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// script is a task's config block. The package comment describes its keys.
type script struct {
	forever               bool
	runFor                time.Duration
	exitCode              int
	exitSignal            int
	startDelay            time.Duration
	startError            string
	startErrorRecoverable bool
	ignoreAll             bool
	ignored               []int
	killAfter             time.Duration
}

// scriptedExit returns the exit of a task that ends by itself.
func (s script) scriptedExit() drivers.Exit {
	if s.exitSignal != 0 {
		return drivers.Exit{Signal: s.exitSignal, Code: 128 + s.exitSignal}
	}
	return drivers.Exit{Code: s.exitCode}
}

// isSignalIgnored reports whether a signal does not end the task.
func (s script) isSignalIgnored(number int) bool {
	return s.ignoreAll || slices.Contains(s.ignored, number)
}

// parseScript reads a config block. The error names all its problems.
func parseScript(config map[string]any) (script, error) {
	s := script{forever: true}
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if err := s.setOption(key, config[key]); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return script{}, fleet.Errorf(fleet.CodeInvalid, "config of %s: %s", Name, strings.Join(wrong, "; "))
	}
	return s, nil
}

// setOption sets the field of one key of the config block.
func (s *script) setOption(key string, value any) (err error) {
	switch key {
	case "run_for":
		s.forever = false
		s.runFor, err = parseDuration(value)
	case "exit_code":
		s.exitCode, err = parseInteger(value)
		if err == nil && (s.exitCode < 0 || s.exitCode > 255) {
			err = fmt.Errorf("must be 0 to 255, not %d", s.exitCode)
		}
	case "exit_signal":
		s.exitSignal, err = signalNumber(value)
	case "start_delay":
		s.startDelay, err = parseDuration(value)
	case "start_error":
		s.startError, err = castOption[string](value)
	case "start_error_recoverable":
		s.startErrorRecoverable, err = castOption[bool](value)
	case "ignore_signals":
		err = s.parseIgnoredSignals(value)
	case "kill_after":
		s.killAfter, err = parseDuration(value)
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	if err != nil {
		return fmt.Errorf("%s %w", key, err)
	}
	return nil
}

// parseIgnoredSignals sets the ignored signals from true, for all, or a list of names.
func (s *script) parseIgnoredSignals(value any) error {
	switch v := value.(type) {
	case bool:
		s.ignoreAll = v
		return nil
	case []string:
		return s.parseIgnoredSignals(toAny(v))
	case []any:
		for _, name := range v {
			n, err := signalNumber(name)
			if err != nil {
				return err
			}
			s.ignored = append(s.ignored, n)
		}
		return nil
	}
	return fmt.Errorf("must be true or a list of signals, not %v", value)
}

// toAny converts a list of strings to the type that a decoded config block has.
func toAny(list []string) []any {
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

// castOption returns a config value as a T, or an error if it has another type.
func castOption[T any](value any) (T, error) {
	v, ok := value.(T)
	if !ok {
		return v, fmt.Errorf("must be %T, not %v", v, value)
	}
	return v, nil
}

// signalNumber returns the number of the signal that a config value names.
func signalNumber(value any) (int, error) {
	name, err := castOption[string](value)
	if err != nil {
		return 0, err
	}
	return drivers.ParseSignal(name)
}

// parseDuration reads a string like "1m30s"; negative ones are an error.
func parseDuration(value any) (time.Duration, error) {
	text, err := castOption[string](value)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("must be a duration like 30s, not %q", text)
	}
	return d, nil
}

// parseInteger reads a whole number as HCL, JSON and CBOR decode it.
func parseInteger(value any) (int, error) {
	switch v := value.(type) {
	case int:
		return v, nil
	case int64:
		return int(v), nil
	case uint64:
		if v <= 1<<31 {
			return int(v), nil
		}
	case float64:
		if v == float64(int32(v)) {
			return int(v), nil
		}
	}
	return 0, fmt.Errorf("must be a whole number, not %v", value)
}
