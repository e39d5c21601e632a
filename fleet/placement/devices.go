package placement

import (
	"cmp"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/internal/sorting"
)

// assignDevice assigns devices of one kind: of several suitable kinds, the one with the highest
// affinity score. It returns that score, from -1 to 1.
func (c *Claims) assignDevice(r *fleet.RequestedDevice, a *fleet.AssignedResources) (fleet.AssignedDevice, float64, string) {
	own := a.DeviceIDs()
	best, liked := fleet.AssignedDevice{}, 0.0
	for _, kind := range deviceKinds(c.node) {
		if !matchesDevice(r, kind[0]) {
			continue
		}
		var free []string
		for _, d := range kind {
			if !c.devices[d.ID] && !slices.Contains(own, d.ID) {
				free = append(free, d.ID)
			}
		}
		if len(free) < max(r.Count, 1) {
			continue
		}
		if score := deviceAffinityScore(r, kind[0]); best.DeviceIDs == nil || score > liked {
			d := kind[0]
			best = fleet.AssignedDevice{Vendor: d.Vendor, Type: d.Type, Name: d.Name, DeviceIDs: free[:max(r.Count, 1)]}
			liked = score
		}
	}
	if best.DeviceIDs == nil {
		return best, 0, "devices: no " + r.Name + " free"
	}
	return best, liked, ""
}

// deviceKinds groups a node's devices by vendor, type and name.
func deviceKinds(n *fleet.Node) [][]fleet.Device {
	var kinds [][]fleet.Device
	for _, d := range n.Devices {
		i := slices.IndexFunc(kinds, func(k []fleet.Device) bool {
			return k[0].Vendor == d.Vendor && k[0].Type == d.Type && k[0].Name == d.Name
		})
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, nil)
		}
		kinds[i] = append(kinds[i], d)
	}
	sorting.Slice(kinds, func(a, b []fleet.Device) int {
		return cmp.Or(cmp.Compare(a[0].Vendor, b[0].Vendor), cmp.Compare(a[0].Type, b[0].Type), cmp.Compare(a[0].Name, b[0].Name))
	})
	return kinds
}

// OffersDevice reports whether a node has the requested number of devices, taken or not.
func OffersDevice(n *fleet.Node, r *fleet.RequestedDevice) bool {
	return slices.ContainsFunc(deviceKinds(n), func(k []fleet.Device) bool { return len(k) >= max(r.Count, 1) && matchesDevice(r, k[0]) })
}

// matchesDevice reports whether a device is of the requested kind.
func matchesDevice(r *fleet.RequestedDevice, d fleet.Device) bool {
	parts := strings.SplitN(r.Name, "/", 3)
	switch {
	case len(parts) == 1 && parts[0] != d.Type,
		len(parts) >= 2 && (parts[0] != d.Vendor || parts[1] != d.Type),
		len(parts) == 3 && parts[2] != d.Name:
		return false
	}
	n := deviceNode(d)
	for _, c := range r.Constraints {
		cond, err := Compile(deviceConstraint(c))
		if err != nil || !cond.Holds(n) {
			return false
		}
	}
	return true
}

// deviceAffinityScore is how well a device is liked: the weights of the affinities that it
// fulfils, as a share of all.
func deviceAffinityScore(r *fleet.RequestedDevice, d fleet.Device) float64 {
	n := deviceNode(d)
	sum, all := 0.0, 0.0
	for _, a := range r.Affinities {
		all += float64(max(a.Weight, -a.Weight))
		if cond, err := Compile(deviceConstraint(a.Constraint())); err == nil && cond.Holds(n) {
			sum += float64(a.Weight)
		}
	}
	if all == 0 {
		return 0
	}
	return sum / all
}

// deviceNode presents a device as a node, so that conditions can be held against
// it: what ${device.…} names are attributes.
func deviceNode(d fleet.Device) *fleet.Node {
	n := &fleet.Node{Attributes: map[string]string{
		"device.vendor": d.Vendor, "device.type": d.Type, "device.model": d.Name, "device.ids": d.ID,
	}}
	for k, v := range d.Attributes {
		n.Attributes["device.attr."+k] = v
	}
	return n
}

func deviceConstraint(c fleet.Constraint) fleet.Constraint {
	c.LTarget = strings.ReplaceAll(c.LTarget, "${device.", "${attr.device.")
	c.RTarget = strings.ReplaceAll(c.RTarget, "${device.", "${attr.device.")
	return c
}
