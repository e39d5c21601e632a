package state

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// subsystemDevice is that of node events about devices.
const subsystemDevice = "Device"

// storeMissingDevices stores the devices that allocations of a node have and its edge does not find, and adds an event for each one
// that is gone or found again. n must be the entry's own copy, with the devices that are found.
func (t *tx) storeMissingDevices(n *nodeRow, now int64) {
	before := n.MissingDevices
	n.MissingDevices = t.findMissingDevices(&n.Node, now)
	for _, d := range n.MissingDevices {
		if !slices.ContainsFunc(before, d.IsSame) {
			n.addNodeEvent(subsystemDevice, fmt.Sprintf("Device %s is not found; allocation %s has it", d, fleet.Short(d.AllocID)), now, t.index)
		}
	}
	for _, d := range before {
		if slices.ContainsFunc(n.Devices, func(f fleet.Device) bool { return f.ID == d.ID }) {
			n.addNodeEvent(subsystemDevice, fmt.Sprintf("Device %s is found again; allocation %s has it", d, fleet.Short(d.AllocID)), now, t.index)
		}
	}
}

// findMissingDevices returns the devices that allocations of a node have and its edge does not find. Those that were missing before
// keep their time.
func (t *tx) findMissingDevices(n *fleet.Node, now int64) []fleet.MissingDevice {
	found := map[string]bool{}
	for _, d := range n.Devices {
		found[d.ID] = true
	}
	var missing []fleet.MissingDevice
	for _, id := range t.allocsOn(n.ID) {
		a := t.currentAlloc(id)
		if a.Allotment == nil || !a.OccupiesNode() {
			continue
		}
		for _, task := range slices.Sorted(maps.Keys(a.Allotment.Tasks)) {
			for _, given := range a.Allotment.Tasks[task].Devices {
				for _, device := range given.DeviceIDs {
					if found[device] {
						continue
					}
					d := fleet.MissingDevice{Vendor: given.Vendor, Type: given.Type, Name: given.Name, ID: device, AllocID: id, Since: time.Unix(0, now).UTC()}
					if i := slices.IndexFunc(n.MissingDevices, d.IsSame); i >= 0 {
						d.Since = n.MissingDevices[i].Since
					}
					missing = append(missing, d)
				}
			}
		}
	}
	return missing
}

// dropMissingDevices forgets the missing devices of an allocation that no longer has them.
func (t *tx) dropMissingDevices(node fleet.NodeID, alloc fleet.AllocID) {
	ofAlloc := func(d fleet.MissingDevice) bool { return d.AllocID == alloc }
	if n := nodeTable.currentRow(t, idKey(node)); n == nil || !slices.ContainsFunc(n.MissingDevices, ofAlloc) {
		return
	}
	n := t.ownNodeRow(node)
	n.MissingDevices = slices.DeleteFunc(slices.Clone(n.MissingDevices), ofAlloc)
	t.nodeChanged(n)
}
