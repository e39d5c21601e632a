package hub_test

import (
	"testing"

	"skerry/hub"
	"skerry/hub/api"
	"skerry/reconcile"
)

// TestADryRunTellsAllThatIsDecided leaves out what is lost alone: what takes its place counts.
func TestADryRunTellsAllThatIsDecided(t *testing.T) {
	got := hub.GroupUpdates(reconcile.GroupSummary{Place: 1, Stop: 2, Unknown: 3, Reconnect: 4, InPlace: 5, Destructive: 6, Canary: 7, Ignore: 8}, 9, 10)
	want := api.GroupUpdates{Place: 1, Stop: 2, Disconnect: 3, Reconnect: 4, InPlaceUpdate: 5, DestructiveUpdate: 6, Canary: 7, Ignore: 8, NoNode: 9, AwaitsRoom: 10}
	if got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
