package serial_test

import (
	"path/filepath"
	"reflect"
	"testing"

	"skerry/devices"
	"skerry/devices/devicetest"
	"skerry/devices/serial"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

const ftdi = "usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0"

// mustRoots makes a machine with a known adapter, one that sysfs does not know, and one that was just unplugged.
func mustRoots(tb testing.TB) sysfs.Roots {
	tb.Helper()
	const port = "devices/pci0000:00/0000:00:14.0/usb1/1-2"
	return sysfs.Roots{
		Sys: devicetest.MustTree(tb, map[string]string{
			port + "/idVendor": "0403\n", port + "/idProduct": "6001\n", port + "/serial": "A50285BI\n",
			port + "/manufacturer": "FTDI\n", port + "/product": "FT232R USB UART\n",
			port + "/1-2:1.0/ttyUSB0/driver":             "-> ../../../../../../../bus/usb-serial/drivers/ftdi_sio",
			port + "/1-2:1.0/ttyUSB0/tty/ttyUSB0/device": "-> ../../../ttyUSB0",
			"class/tty/ttyUSB0":                          "-> ../../" + port + "/1-2:1.0/ttyUSB0/tty/ttyUSB0",
		}),
		Dev: devicetest.MustTree(tb, map[string]string{
			"ttyUSB0": "", "ttyUSB1": "",
			"serial/by-id/" + ftdi:          "-> ../../ttyUSB0",
			"serial/by-id/usb-Other-if00":   "-> ../../ttyUSB1",
			"serial/by-id/usb-Gone-if00":    "-> ../../ttyUSB7",
			"serial/by-path/pci-0000:00:14": "-> ../../ttyUSB0",
		}),
	}
}

func TestConformance(t *testing.T) {
	roots := mustRoots(t)
	devicetest.Run(t, func(testing.TB) devices.Finder { return serial.New(roots) })
}

// TestOnThisMachine reads the devices of the machine that runs the test.
func TestOnThisMachine(t *testing.T) { devicetest.RunOnMachine(t, serial.New(sysfs.Roots{})) }

func TestFind(t *testing.T) {
	found, err := serial.New(mustRoots(t)).Find(t.Context())
	want := []fleet.Device{
		{Kind: "serial", Vendor: "0403", Type: "serial", Name: "FT232R USB UART", ID: ftdi, Attributes: map[string]string{
			"path": "/dev/serial/by-id/" + ftdi, "interface": "00-port0", "driver": "ftdi_sio",
			"vendor_id": "0403", "product_id": "6001", "serial": "A50285BI", "manufacturer": "FTDI", "product": "FT232R USB UART",
		}},
		{Kind: "serial", Vendor: "serial", Type: "serial", Name: "usb-Other-if00", ID: "usb-Other-if00", Attributes: map[string]string{
			"path": "/dev/serial/by-id/usb-Other-if00", "interface": "00",
		}},
	}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
}

// TestReserve gives the port under both of its names.
func TestReserve(t *testing.T) {
	roots := mustRoots(t)
	r, err := serial.New(roots).Reserve(t.Context(), []string{ftdi})
	tty := filepath.Join(roots.Dev, "ttyUSB0")
	want := devices.Reservation{
		Nodes: []fleet.DeviceNode{
			{HostPath: tty, TaskPath: "/dev/ttyUSB0", Permissions: "rwm"},
			{HostPath: tty, TaskPath: "/dev/serial/by-id/" + ftdi, Permissions: "rwm"},
		},
		Env: map[string]string{"SERIAL_VISIBLE_DEVICES": ftdi, "SERIAL_DEVICE_PATHS": "/dev/serial/by-id/" + ftdi},
	}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
}

func TestWithoutSerialPorts(t *testing.T) {
	found, err := serial.New(sysfs.Roots{Sys: t.TempDir(), Dev: t.TempDir()}).Find(t.Context())
	if len(found) != 0 || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}
