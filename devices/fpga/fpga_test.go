package fpga_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"skerry/devices"
	"skerry/devices/devicetest"
	"skerry/devices/fpga"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// mustRoots makes a machine with a card of two regions, and an FPGA of a board, which has no nodes.
func mustRoots(tb testing.TB) sysfs.Roots {
	tb.Helper()
	const card = "devices/pci0000:3a/0000:3b:00.0"
	return sysfs.Roots{
		Sys: devicetest.MustTree(tb, map[string]string{
			card + "/vendor": "0x8086\n", card + "/device": "0x0b30\n", card + "/class": "0x120000\n",
			card + "/driver": "-> ../../../bus/pci/drivers/dfl-pci",
			card + "/fpga_region/region0/dfl-fme.0/dev":          "240:0\n",
			card + "/fpga_region/region0/dfl-port.0/dev":         "241:0\n",
			card + "/fpga_region/region0/dfl-fme.0/notes":        "",
			card + "/fpga_region/region0/dfl-fme.0/bitstream_id": "0x23000410010310\n",
			card + "/fpga_region/region1/compat_id":              "ce48969398f05f33946d560708be108a\n",
			"devices/platform/soc/fpga-full/region2/compat_id":   "\n",
			"class/fpga_region/region0":                          "-> ../../" + card + "/fpga_region/region0",
			"class/fpga_region/region1":                          "-> ../../" + card + "/fpga_region/region1",
			"class/fpga_region/region2":                          "-> ../../devices/platform/soc/fpga-full/region2",
		}),
		Dev: devicetest.MustTree(tb, map[string]string{"dfl-fme.0": "", "dfl-port.0": ""}),
	}
}

func TestConformance(t *testing.T) {
	roots := mustRoots(t)
	devicetest.Run(t, func(testing.TB) devices.Finder { return fpga.New(roots) })
}

// TestOnThisMachine reads the devices of the machine that runs the test.
func TestOnThisMachine(t *testing.T) { devicetest.RunOnMachine(t, fpga.New(sysfs.Roots{})) }

func TestFind(t *testing.T) {
	roots := mustRoots(t)
	found, err := fpga.New(roots).Find(t.Context())
	pci := map[string]string{"pci_address": "0000:3b:00.0", "vendor_id": "8086", "device_id": "0b30", "driver": "dfl-pci"}
	with := func(k, v string) map[string]string {
		m := map[string]string{k: v}
		for k, v := range pci {
			m[k] = v
		}
		return m
	}
	want := []fleet.Device{
		{Kind: "fpga", Vendor: "8086", Type: "fpga", Name: "0b30", ID: "0000:3b:00.0/region0", Attributes: with("bitstream_id", "0x23000410010310")},
		{Kind: "fpga", Vendor: "8086", Type: "fpga", Name: "0b30", ID: "0000:3b:00.0/region1", Attributes: with("compat_id", "ce48969398f05f33946d560708be108a")},
		{Kind: "fpga", Vendor: "fpga", Type: "fpga", Name: "region2", ID: "region2", Attributes: map[string]string{}},
	}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
	r, err := fpga.New(roots).Reserve(t.Context(), []string{"0000:3b:00.0/region0"})
	if err != nil || len(r.Nodes) != 2 || r.Nodes[1].TaskPath != "/dev/dfl-port.0" || r.Env["FPGA_DEVICE_PATHS"] != "/dev/dfl-fme.0" {
		t.Errorf("reserved %+v, %v", r, err)
	}
}

// TestMissingNode names a region whose node is missing, and finds the others.
func TestMissingNode(t *testing.T) {
	roots := mustRoots(t)
	if err := os.Remove(filepath.Join(roots.Dev, "dfl-port.0")); err != nil {
		t.Fatal(err)
	}
	found, err := fpga.New(roots).Find(t.Context())
	if len(found) != 2 || err == nil || !strings.Contains(err.Error(), "region0") {
		t.Errorf("found %d, %v, want 2 and an error that names region0", len(found), err)
	}
}
