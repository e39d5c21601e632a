package state_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// stick returns a device that an edge finds.
func stick(id string) fleet.Device {
	return fleet.Device{Kind: "usb", Vendor: "acme", Type: "usb", Name: "stick", ID: id}
}

// TestMissingDevices: a node shows a device that one of its allocations has and its edge does not find any more, until it is found again
// or the allocation has ended. It shows since when, over further descriptions, and has an event for each change.
func TestMissingDevices(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	n := description(id, "n1")
	say := func(found ...fleet.Device) {
		w.now = w.now.Add(time.Minute)
		n.Devices = found
		w.mustApply(state.NodeRegister{Node: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	}
	say(stick("s1"), stick("s2"), stick("free"))
	place := func(devices ...string) fleet.AllocID {
		a := w.newAllocOfJob("shop", id)
		a.Allotment = &fleet.AssignedResources{Tasks: map[string]fleet.AssignedTaskResources{"web": {
			Devices: []fleet.AssignedDevice{{Vendor: "acme", Type: "usb", Name: "stick", DeviceIDs: devices}},
		}}}
		w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(a)}, EvalID: fleet.EvalID(w.nextTestID("eval")), Now: w.nowNanos()})
		return a.ID
	}
	first, second := place("s1"), place("s2")
	w.reportStatus(id, fleet.ClientRunning, first, second)
	missing := func(alloc fleet.AllocID, device string, since time.Time) fleet.MissingDevice {
		return fleet.MissingDevice{Vendor: "acme", Type: "usb", Name: "stick", ID: device, AllocID: alloc, Since: since.UTC()}
	}
	eventsBefore := len(w.getNode(id).Events)
	want := func(missing []fleet.MissingDevice, events ...string) {
		t.Helper()
		got := w.getNode(id)
		sorted := slices.SortedFunc(slices.Values(got.MissingDevices), func(a, b fleet.MissingDevice) int { return strings.Compare(a.ID, b.ID) })
		if !slices.EqualFunc(sorted, missing, func(a, b fleet.MissingDevice) bool {
			return a.IsSame(b) && a.String() == b.String() && a.Since.Equal(b.Since)
		}) {
			t.Errorf("missing are %+v, want %+v", got.MissingDevices, missing)
		}
		said := []string{}
		for _, e := range got.Events[min(eventsBefore, len(got.Events)):] {
			said = append(said, e.Subsystem+": "+e.Message)
		}
		if !slices.EqualFunc(said, events, strings.HasPrefix) {
			t.Errorf("events %q, want %q", said, events)
		}
	}
	want(nil)
	say(stick("s1"), stick("s2")) // one that nobody has
	want(nil)
	say(stick("s2"))
	since := w.now
	lost, found := "Device: Device acme/usb/stick (s1) is not found; allocation "+fleet.Short(first), "Device: Device acme/usb/stick (s1) is found again"
	want([]fleet.MissingDevice{missing(first, "s1", since)}, lost)
	say()
	other := "Device: Device acme/usb/stick (s2) is not found; allocation " + fleet.Short(second)
	want([]fleet.MissingDevice{missing(first, "s1", since), missing(second, "s2", w.now)}, lost, other)
	w.openNextSession(id) // nothing changes with a session alone
	w.reportStatus(id, fleet.ClientFailed, second)
	want([]fleet.MissingDevice{missing(first, "s1", since)}, lost, other)
	say(stick("s2"))
	want([]fleet.MissingDevice{missing(first, "s1", since)}, lost, other) // nobody has s2 any more
	say(stick("s1"), stick("s2"))
	want(nil, lost, other, found)
	say()
	want([]fleet.MissingDevice{missing(first, "s1", w.now)}, lost, other, found, lost)
	w.reportStatus(id, fleet.ClientComplete, first)
	want(nil, lost, other, found, lost)
}
