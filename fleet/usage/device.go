package usage

import "time"

// DeviceGroup is what the devices of one model do, in Nomad's shape.
type DeviceGroup struct {
	Vendor, Type, Name string
	InstanceStats      map[string]*Device // by the id of the device
}

// Device is what one device does.
type Device struct {
	Summary   *DeviceValue // the value that describes it best; nil: none
	Stats     *DeviceValues
	Timestamp time.Time // by the edge's clock
}

// DeviceValues are the values of a device by their names.
type DeviceValues struct {
	Attributes map[string]*DeviceValue
}

// DeviceValue is one value of a device: a number, a part of another, or a text.
type DeviceValue struct {
	FloatNumeratorVal   *float64 `json:",omitempty"`
	FloatDenominatorVal *float64 `json:",omitempty"`
	StringVal           *string  `json:",omitempty"`
	Unit                string   `json:",omitempty"`
	Desc                string   `json:",omitempty"`
}
