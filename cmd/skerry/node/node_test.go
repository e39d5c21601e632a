package node

import (
	"strings"
	"testing"
	"time"

	"skerry/cmd/console"
	"skerry/fleet"
)

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
