package fleet

import (
	"cmp"
	"slices"
	"strings"
)

// assignDevice gives the devices of one kind that a task asks for: of several kinds
// that will do, those that its affinities like best. It returns how well they are
// liked, from -1 to 1.
func (c *Claims) assignDevice(r *RequestedDevice, a *AssignedResources) (AssignedDevice, float64, string) {
	own := a.DeviceIDs()
	best, liked := AssignedDevice{}, 0.0
	for _, kind := range deviceKinds(c.node) {
		if !r.Matches(kind[0]) {
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
		if score := r.affinityScore(kind[0]); best.DeviceIDs == nil || score > liked {
			d := kind[0]
			best = AssignedDevice{Vendor: d.Vendor, Type: d.Type, Name: d.Name, DeviceIDs: free[:max(r.Count, 1)]}
			liked = score
		}
	}
	if best.DeviceIDs == nil {
		return best, 0, "devices: no " + r.Name + " free"
	}
	return best, liked, ""
}

// deviceKinds sorts a node's devices by what they are.
func deviceKinds(n *Node) [][]Device {
	var kinds [][]Device
	for _, d := range n.Devices {
		i := slices.IndexFunc(kinds, func(k []Device) bool {
			return k[0].Vendor == d.Vendor && k[0].Type == d.Type && k[0].Name == d.Name
		})
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, nil)
		}
		kinds[i] = append(kinds[i], d)
	}
	slices.SortFunc(kinds, func(a, b []Device) int {
		return cmp.Or(cmp.Compare(a[0].Vendor, b[0].Vendor), cmp.Compare(a[0].Type, b[0].Type), cmp.Compare(a[0].Name, b[0].Name))
	})
	return kinds
}

// Offers reports whether a node has as many devices as are asked for, whoever has
// them now.
func (n *Node) Offers(r *RequestedDevice) bool {
	return slices.ContainsFunc(deviceKinds(n), func(k []Device) bool { return len(k) >= max(r.Count, 1) && r.Matches(k[0]) })
}

// Matches reports whether a device is one that is asked for.
func (r *RequestedDevice) Matches(d Device) bool {
	parts := strings.SplitN(r.Name, "/", 3)
	switch {
	case len(parts) == 1 && parts[0] != d.Type,
		len(parts) >= 2 && (parts[0] != d.Vendor || parts[1] != d.Type),
		len(parts) == 3 && parts[2] != d.Name:
		return false
	}
	n := deviceNode(d)
	for _, c := range r.Constraints {
		cond, err := deviceConstraint(c).Compile()
		if err != nil || !cond.Holds(n) {
			return false
		}
	}
	return true
}

// affinityScore is how well a device is liked: the weights of the affinities that it
// fulfils, as a share of all.
func (r *RequestedDevice) affinityScore(d Device) float64 {
	n := deviceNode(d)
	sum, all := 0.0, 0.0
	for _, a := range r.Affinities {
		all += float64(max(a.Weight, -a.Weight))
		if cond, err := deviceConstraint(a.Constraint()).Compile(); err == nil && cond.Holds(n) {
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
func deviceNode(d Device) *Node {
	n := &Node{Attributes: map[string]string{
		"device.vendor": d.Vendor, "device.type": d.Type, "device.model": d.Name, "device.ids": d.ID,
	}}
	for k, v := range d.Attributes {
		n.Attributes["device.attr."+k] = v
	}
	return n
}

func deviceConstraint(c Constraint) Constraint {
	c.LTarget = strings.ReplaceAll(c.LTarget, "${device.", "${attr.device.")
	c.RTarget = strings.ReplaceAll(c.RTarget, "${device.", "${attr.device.")
	return c
}
