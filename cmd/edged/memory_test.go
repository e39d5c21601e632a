package edged

import (
	"runtime/debug"
	"testing"
)

// TestTheCollectorRunsMoreOftenAfterTheStart: unless the environment has GOGC, which an operator sets to get another trade.
func TestTheCollectorRunsMoreOftenAfterTheStart(t *testing.T) {
	for _, tc := range []struct {
		environment string
		want        int
	}{{"", gcPercent}, {"150", 150}} {
		t.Setenv("GOGC", tc.environment)
		before := debug.SetGCPercent(150)
		saveMemory()
		if got := debug.SetGCPercent(before); got != tc.want {
			t.Errorf("GOGC=%q: the collector runs after %d percent, want %d", tc.environment, got, tc.want)
		}
	}
}
