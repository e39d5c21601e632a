package node

import (
	"strings"
	"testing"
	"time"

	"skerry/cmd/console"
	"skerry/fleet"
)

// TestEventsHaveLocalTimes shows the events of a node where the clock on the wall is two hours ahead of UTC, by which the
// hub tells times.
func TestEventsHaveLocalTimes(t *testing.T) {
	here := time.Local
	t.Cleanup(func() { time.Local = here })
	time.Local = time.FixedZone("here", 2*60*60)
	var text strings.Builder
	writeNode(&console.Output{Writer: &text}, fleet.Node{ID: "n1", Events: []fleet.NodeEvent{
		{Timestamp: time.Date(2026, 6, 30, 22, 30, 0, 0, time.UTC), Subsystem: "Cluster", Message: "Node registered"},
	}}, nil)
	if got := text.String(); !strings.Contains(got, "\n2026-07-01 00:30:00  Cluster ") {
		t.Errorf("its events have other times:\n%s", got)
	}
}

// TestMissingDeviceIsShown shows a device that an allocation has and its node does not find, beside those that it finds.
func TestMissingDeviceIsShown(t *testing.T) {
	at := time.Date(2026, 11, 30, 5, 33, 0, 0, time.Local)
	var text strings.Builder
	writeNode(&console.Output{Writer: &text}, fleet.Node{
		ID: "n1", Devices: []fleet.Device{{Kind: "usb", Vendor: "acme", Type: "usb", Name: "stick", ID: "s1"}},
		MissingDevices: []fleet.MissingDevice{{Vendor: "acme", Type: "gpu", Name: "X1", ID: "g2", AllocID: "1d697ed5-1111", Since: at}},
	}, nil)
	for _, want := range []string{
		"\nDevice usb      acme stick usb s1\n",
		"\nDevice missing  acme X1 gpu g2 not healthy: not found since 2026-11-30 05:33:00; allocation 1d697ed5 has it\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not shown:\n%s", want, text.String())
		}
	}
}
