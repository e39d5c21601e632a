package fingerprint

import (
	"context"
	"slices"
	"time"

	"skerry/devices"
	"skerry/fleet"
	"skerry/fleet/usage"
)

// measureDevices returns the present values of the stored node's devices, if their kinds can be measured, in groups of
// one model. It logs an error of a kind, and returns the other kinds.
func (f *Fingerprinter) measureDevices(ctx context.Context, now time.Time) []usage.DeviceGroup {
	var groups []usage.DeviceGroup
	known := f.Node().Devices
	for _, finder := range f.cfg.Finders {
		meter, ok := finder.(devices.Meter)
		if !ok || !slices.ContainsFunc(known, func(d fleet.Device) bool { return d.Kind == finder.Kind() }) {
			continue // nothing is run for hardware that the machine does not have
		}
		measured, err := meter.Measure(ctx)
		if err != nil && ctx.Err() == nil {
			f.log.Warn("devices of a kind cannot be measured", "kind", finder.Kind(), "error", err)
		}
		for _, d := range known {
			if values, ok := measured[d.ID]; ok && d.Kind == finder.Kind() {
				groups = addToGroup(groups, d, toDeviceUsage(values, now))
			}
		}
	}
	return groups
}

// addToGroup adds the values of a device to the group of its model.
func addToGroup(groups []usage.DeviceGroup, d fleet.Device, u *usage.Device) []usage.DeviceGroup {
	i := slices.IndexFunc(groups, func(g usage.DeviceGroup) bool {
		return g.Vendor == d.Vendor && g.Type == d.Type && g.Name == d.Name
	})
	if i < 0 {
		i = len(groups)
		groups = append(groups, usage.DeviceGroup{Vendor: d.Vendor, Type: d.Type, Name: d.Name, InstanceStats: map[string]*usage.Device{}})
	}
	groups[i].InstanceStats[d.ID] = u
	return groups
}

// toDeviceUsage converts the values of a device.
func toDeviceUsage(values []devices.Measurement, now time.Time) *usage.Device {
	u := &usage.Device{Stats: &usage.DeviceValues{Attributes: map[string]*usage.DeviceValue{}}, Timestamp: now}
	for _, m := range values {
		v := &usage.DeviceValue{Unit: m.Unit, Desc: m.Name}
		if m.Text != "" {
			v.StringVal = &m.Text
		} else {
			v.FloatNumeratorVal = &m.Value
			if m.Max > 0 {
				v.FloatDenominatorVal = &m.Max
			}
		}
		u.Stats.Attributes[m.Name] = v
		if m.Summary {
			u.Summary = v
		}
	}
	return u
}
