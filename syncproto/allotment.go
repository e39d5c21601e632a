package syncproto

import "skerry/fleet"

// wireAssignedResources is the frozen form of fleet.AssignedResources: the ports, cores and devices that an
// allocation was assigned on its node.
type wireAssignedResources struct {
	Ports []wirePort                   `cbor:"1,keyasint,omitempty"`
	Tasks map[string]wireTaskResources `cbor:"2,keyasint,omitempty"`
}

// wirePort is the frozen form of fleet.AssignedPort.
type wirePort struct {
	Label  string `cbor:"1,keyasint"`
	Value  int    `cbor:"2,keyasint"`
	To     int    `cbor:"3,keyasint,omitempty"`
	HostIP string `cbor:"4,keyasint,omitempty"`
	Shared bool   `cbor:"5,keyasint,omitempty"`
}

// wireTaskResources is the frozen form of fleet.AssignedTaskResources.
type wireTaskResources struct {
	Cores   []int                `cbor:"1,keyasint,omitempty"`
	Devices []wireAssignedDevice `cbor:"2,keyasint,omitempty"`
}

// wireAssignedDevice is the frozen form of fleet.AssignedDevice.
type wireAssignedDevice struct {
	Vendor    string   `cbor:"1,keyasint,omitempty"`
	Type      string   `cbor:"2,keyasint,omitempty"`
	Name      string   `cbor:"3,keyasint,omitempty"`
	DeviceIDs []string `cbor:"4,keyasint,omitempty"`
}

// assignedResourcesToWire converts assigned resources to their frozen form; nil if a is nil or empty.
func assignedResourcesToWire(a *fleet.AssignedResources) *wireAssignedResources {
	if a.Empty() {
		return nil
	}
	w := &wireAssignedResources{}
	for _, p := range a.Ports {
		w.Ports = append(w.Ports, wirePort(p))
	}
	if len(a.Tasks) > 0 {
		w.Tasks = make(map[string]wireTaskResources, len(a.Tasks))
	}
	for name, t := range a.Tasks {
		given := wireTaskResources{Cores: t.Cores}
		for _, d := range t.Devices {
			given.Devices = append(given.Devices, wireAssignedDevice(d))
		}
		w.Tasks[name] = given
	}
	return w
}

// toAssignedResources is the inverse of assignedResourcesToWire; nil stays nil.
func (w *wireAssignedResources) toAssignedResources() *fleet.AssignedResources {
	if w == nil {
		return nil
	}
	a := &fleet.AssignedResources{}
	for _, p := range w.Ports {
		a.Ports = append(a.Ports, fleet.AssignedPort(p))
	}
	if len(w.Tasks) > 0 {
		a.Tasks = make(map[string]fleet.AssignedTaskResources, len(w.Tasks))
	}
	for name, given := range w.Tasks {
		t := fleet.AssignedTaskResources{Cores: given.Cores}
		for _, d := range given.Devices {
			t.Devices = append(t.Devices, fleet.AssignedDevice(d))
		}
		a.Tasks[name] = t
	}
	return a
}
