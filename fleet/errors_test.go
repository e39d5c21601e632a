package fleet

import (
	"errors"
	"testing"
)

// An Error wraps what Errorf was given with %w, with a hint too, and has its own code.
func TestErrorfWraps(t *testing.T) {
	cause := errors.New("the disk is full")
	err := Errorf(CodeUnavailable, "write the log of %s: %w", "hub-1", cause).WithHint("free some space")
	if !errors.Is(err, cause) || CodeOf(err) != CodeUnavailable {
		t.Errorf("%v does not wrap its cause, or has code %s", err, CodeOf(err))
	}
	if want := "write the log of hub-1: the disk is full (free some space)"; err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
	if plain := Errorf(CodeInvalid, "write the log: %v", cause); errors.Unwrap(plain) != nil {
		t.Errorf("%v wraps what was formatted with %%v", plain)
	}
}
