package chaos_test

import (
	"testing"
	"time"

	"skerry/chaos"
	"skerry/chaos/schedule"
)

// TestAJumpIsSeen checks by how much a clock jumps in a storm: by less than what is
// seen in a journal no clock does.
func TestAJumpIsSeen(t *testing.T) {
	for drawn, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Minute, -259 * time.Millisecond: -time.Minute, 59 * time.Second: time.Minute,
		-time.Minute: -time.Minute, -3 * time.Hour: -3 * time.Hour, 800 * 24 * time.Hour: 800 * 24 * time.Hour,
	} {
		f := chaos.Shorter(schedule.Fault{Kind: schedule.ClockJump, Params: schedule.Params{Jump: drawn}})
		if f.Params.Jump != want {
			t.Errorf("a jump by %s became one by %s, want %s", drawn, f.Params.Jump, want)
		}
	}
}
