package accelerator_test

import (
	"reflect"
	"strings"
	"testing"

	"skerry/devices"
	"skerry/devices/accelerator"
	"skerry/devices/devicetest"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// machine is a computer with a Coral, a Hailo, an NPU of its processor, and an unknown card of the class accel.
func machine() map[string]string {
	files := map[string]string{}
	for _, d := range []struct{ address, vendor, device, class, name, driver string }{
		{"0000:01:00.0", "0x1ac1", "0x089a", "apex", "apex_0", "apex"},
		{"0000:02:00.0", "0x1e60", "0x2864", "hailo_chardev", "hailo0", "hailo"},
		{"0000:00:0b.0", "0x8086", "0x7d1d", "accel", "accel0", "intel_vpu"},
		{"0000:05:00.0", "0xabcd", "0x0001", "accel", "accel1", "strange"},
	} {
		pci := "devices/pci0000:00/" + d.address
		files[pci+"/vendor"], files[pci+"/device"] = d.vendor+"\n", d.device+"\n"
		files[pci+"/driver"] = "-> ../../../bus/pci/drivers/" + d.driver
		files[pci+"/"+d.class+"/"+d.name+"/device"] = "-> ../../../" + d.address
		files["class/"+d.class+"/"+d.name] = "-> ../../" + pci + "/" + d.class + "/" + d.name
		files["bus/pci/devices/"+d.address] = "-> ../../../" + pci
	}
	return files
}

var nodes = map[string]string{"apex_0": "", "hailo0": "", "accel/accel0": "", "accel/accel1": ""}

func TestConformance(t *testing.T) {
	roots := sysfs.Roots{Sys: devicetest.MustTree(t, machine()), Dev: devicetest.MustTree(t, nodes)}
	devicetest.Run(t, func(testing.TB) devices.Finder { return accelerator.New(roots) })
}

// TestOnThisMachine reads the devices of the machine that runs the test.
func TestOnThisMachine(t *testing.T) { devicetest.RunOnMachine(t, accelerator.New(sysfs.Roots{})) }

func TestFind(t *testing.T) {
	roots := sysfs.Roots{Sys: devicetest.MustTree(t, machine()), Dev: devicetest.MustTree(t, nodes)}
	found, err := accelerator.New(roots).Find(t.Context())
	device := func(address, vendor, name, vendorID, deviceID, driver string) fleet.Device {
		return fleet.Device{Kind: "accelerator", Vendor: vendor, Type: "accelerator", Name: name, ID: address, Attributes: map[string]string{
			"pci_address": address, "vendor_id": vendorID, "device_id": deviceID, "driver": driver,
		}}
	}
	want := []fleet.Device{
		device("0000:00:0b.0", "intel", "NPU (Meteor Lake)", "8086", "7d1d", "intel_vpu"),
		device("0000:01:00.0", "google", "Coral Edge TPU", "1ac1", "089a", "apex"),
		device("0000:02:00.0", "hailo", "Hailo-8", "1e60", "2864", "hailo"),
		device("0000:05:00.0", "abcd", "0001", "abcd", "0001", "strange"),
	}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
	r, err := accelerator.New(roots).Reserve(t.Context(), []string{"0000:00:0b.0", "0000:01:00.0"})
	if err != nil || r.Env["ACCELERATOR_DEVICE_PATHS"] != "/dev/accel/accel0,/dev/apex_0" {
		t.Errorf("reserved %+v, %v", r, err)
	}
}

// TestWithoutDriver says which modules an accelerator on the bus needs.
func TestWithoutDriver(t *testing.T) {
	files := machine()
	for name := range files {
		if strings.Contains(name, "apex") {
			delete(files, name)
		}
	}
	roots := sysfs.Roots{Sys: devicetest.MustTree(t, files), Dev: devicetest.MustTree(t, nodes)}
	found, err := accelerator.New(roots).Find(t.Context())
	if len(found) != 3 || err == nil || !strings.Contains(err.Error(), "0000:01:00.0 (Coral Edge TPU) has no driver: load gasket and apex") {
		t.Errorf("found %d, %v", len(found), err)
	}
}
