package schedule_test

import (
	"reflect"
	"testing"
	"time"

	"skerry/chaos/schedule"
)

func TestPlayed(t *testing.T) {
	cut := schedule.Fault{Kind: schedule.LinkCut, At: time.Minute, For: time.Minute, Targets: []string{"edge-1"}}
	rejoin := schedule.Fault{Kind: schedule.MassRejoin, At: 5 * time.Minute, For: 30 * time.Second}
	given := []schedule.Fault{rejoin, cut}
	kill := schedule.Fault{
		Kind: schedule.LeaderKill, At: 5*time.Minute + 31500*time.Millisecond, For: 5 * time.Second, Targets: []string{schedule.TargetLeader},
	}
	if got := schedule.WithInducedFaults(given); !reflect.DeepEqual(got, []schedule.Fault{rejoin, cut, kill}) {
		t.Errorf("played: %v", got)
	}
	if got := schedule.WithInducedFaults(given[1:]); !reflect.DeepEqual(got, given[1:]) {
		t.Errorf("a cut brings nothing along, played: %v", got)
	}
}
