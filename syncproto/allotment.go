package syncproto

import "skerry/fleet"

// wireAllotment is what an allocation was given of its node by name: ports, cores and
// devices.
type wireAllotment struct {
	Ports []wirePort           `cbor:"1,keyasint,omitempty"`
	Tasks map[string]wireGiven `cbor:"2,keyasint,omitempty"`
}

type wirePort struct {
	Label  string `cbor:"1,keyasint"`
	Value  int    `cbor:"2,keyasint"`
	To     int    `cbor:"3,keyasint,omitempty"`
	HostIP string `cbor:"4,keyasint,omitempty"`
	Shared bool   `cbor:"5,keyasint,omitempty"`
}

type wireGiven struct {
	Cores   []int             `cbor:"1,keyasint,omitempty"`
	Devices []wireGivenDevice `cbor:"2,keyasint,omitempty"`
}

type wireGivenDevice struct {
	Vendor    string   `cbor:"1,keyasint,omitempty"`
	Type      string   `cbor:"2,keyasint,omitempty"`
	Name      string   `cbor:"3,keyasint,omitempty"`
	DeviceIDs []string `cbor:"4,keyasint,omitempty"`
}

func allotmentToWire(a *fleet.Allotment) *wireAllotment {
	if a.Empty() {
		return nil
	}
	w := &wireAllotment{}
	for _, p := range a.Ports {
		w.Ports = append(w.Ports, wirePort(p))
	}
	if len(a.Tasks) > 0 {
		w.Tasks = make(map[string]wireGiven, len(a.Tasks))
	}
	for name, t := range a.Tasks {
		given := wireGiven{Cores: t.Cores}
		for _, d := range t.Devices {
			given.Devices = append(given.Devices, wireGivenDevice(d))
		}
		w.Tasks[name] = given
	}
	return w
}

func (w *wireAllotment) allotment() *fleet.Allotment {
	if w == nil {
		return nil
	}
	a := &fleet.Allotment{}
	for _, p := range w.Ports {
		a.Ports = append(a.Ports, fleet.AllottedPort(p))
	}
	if len(w.Tasks) > 0 {
		a.Tasks = make(map[string]fleet.TaskAllotment, len(w.Tasks))
	}
	for name, given := range w.Tasks {
		t := fleet.TaskAllotment{Cores: given.Cores}
		for _, d := range given.Devices {
			t.Devices = append(t.Devices, fleet.AllottedDevice(d))
		}
		a.Tasks[name] = t
	}
	return a
}
