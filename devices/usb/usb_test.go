package usb_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"skerry/devices"
	"skerry/devices/devicetest"
	"skerry/devices/sysfs"
	"skerry/devices/usb"
	"skerry/fleet"
)

// mustSysfs makes a sysfs from testdata/bus.txt and returns its root.
func mustSysfs(tb testing.TB) string {
	tb.Helper()
	b, err := os.ReadFile("testdata/bus.txt")
	if err != nil {
		tb.Fatal(err)
	}
	root := tb.TempDir()
	for line := range strings.Lines(string(b)) {
		name, content, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok {
			continue
		}
		text, err := strconv.Unquote(`"` + content + `"`)
		if err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
		path := filepath.Join(root, "bus", "usb", "devices", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

func TestConformance(t *testing.T) {
	roots := sysfs.Roots{Sys: mustSysfs(t), Dev: devicetest.MustTree(t, map[string]string{
		"bus/usb/001/004": "", "bus/usb/001/005": "", "bus/usb/001/006": "", "bus/usb/002/003": "", "bus/usb/002/012": "",
	})}
	devicetest.Run(t, func(testing.TB) devices.Finder { return usb.New(roots) })
}

// TestOnThisMachine reads the devices of the machine that runs the test.
func TestOnThisMachine(t *testing.T) { devicetest.RunOnMachine(t, usb.New(sysfs.Roots{})) }

// TestReserve gives a task the node that a device has now, and says so if it has none.
func TestReserve(t *testing.T) {
	roots := sysfs.Roots{Sys: mustSysfs(t), Dev: devicetest.MustTree(t, map[string]string{"bus/usb/001/004": ""})}
	r, err := usb.New(roots).Reserve(t.Context(), []string{"0403:6001:A50285BI"})
	want := devices.Reservation{
		Nodes: []fleet.DeviceNode{{HostPath: filepath.Join(roots.Dev, "bus/usb/001/004"), TaskPath: "/dev/bus/usb/001/004", Permissions: "rwm"}},
		Env:   map[string]string{"USB_VISIBLE_DEVICES": "0403:6001:A50285BI", "USB_DEVICE_PATHS": "/dev/bus/usb/001/004"},
	}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
	_, err = usb.New(roots).Reserve(t.Context(), []string{"1a2c:2124@2-3"})
	if !errors.Is(err, devices.ErrUnplugged) || !strings.Contains(err.Error(), "bus/usb/002/003") {
		t.Errorf("without a node: %v", err)
	}
}

func TestFind(t *testing.T) {
	found, err := usb.New(sysfs.Roots{Sys: mustSysfs(t)}).Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range found {
		got = append(got, fmt.Sprintf("%s: %s %s %s %v", d.ID, d.Vendor, d.Type, d.Name, d.Attributes))
	}
	want := []string{
		"0403:6001:A50285BI: 0403 vendor FT232R USB UART map[bus:1 class:00 interfaces:ff manufacturer:FTDI port:1-1.2 product:FT232R USB UART product_id:6001 serial:A50285BI speed_mbps:12 vendor_id:0403]",
		"046d:0825@1-1.3: 046d miscellaneous Webcam map[bus:1 class:ef port:1-1.3 product:Webcam product_id:0825 serial:0001 vendor_id:046d]",
		"046d:0825@1-1.4: 046d miscellaneous Webcam map[bus:1 class:ef port:1-1.4 product:Webcam product_id:0825 serial:0001 vendor_id:046d]",
		"12d1:1f01:0123456789ABCDEF: 12d1 composite [31mMOBILE map[bus:2 class:00 interfaces:02,08 port:2-4 product:[31mMOBILE product_id:1f01 serial:0123456789ABCDEF vendor_id:12d1]",
		"1a2c:2124@2-3: 1a2c hid USB Keyboard map[bus:2 class:00 interfaces:03 port:2-3 product:USB Keyboard product_id:2124 vendor_id:1a2c]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// An unreadable device is named in the error, and the others are still found.
func TestUnreadable(t *testing.T) {
	root := mustSysfs(t)
	if err := os.Remove(filepath.Join(root, "bus", "usb", "devices", "2-3", "idVendor")); err != nil {
		t.Fatal(err)
	}
	found, err := usb.New(sysfs.Roots{Sys: root}).Find(t.Context())
	if len(found) != 4 || err == nil || !strings.Contains(err.Error(), "2-3") {
		t.Errorf("found %d, %v, want 4 and an error that names 2-3", len(found), err)
	}
}

func TestWithoutUSB(t *testing.T) {
	if found, err := usb.New(sysfs.Roots{Sys: t.TempDir()}).Find(t.Context()); len(found) != 0 || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}
