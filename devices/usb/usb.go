// Package usb finds the USB devices in sysfs, without the hubs that they are connected to, and gives tasks their
// device nodes. edge/fingerprint calls it at each interval, and a runner before a task starts. It starts no
// goroutine, stores nothing, and opens no device.
//
// The ID of a device is VENDOR:PRODUCT:SERIAL if it has a unique serial number, so that it stays the same at
// every port. Otherwise it is VENDOR:PRODUCT@PORT, which stays the same at that port. Attributes that change with
// each connection or boot are left out.
package usb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"skerry/devices"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// Kind is the kind of the devices found here.
const Kind = "usb"

const (
	maxDevices = 512 // further devices are left out
	hubClass   = "09"
	perIface   = "00" // class of a device whose interfaces have classes of their own
)

// classes are the names of USB classes (bDeviceClass, bInterfaceClass).
var classes = map[string]string{
	"01": "audio", "02": "communications", "03": "hid", "05": "physical", "06": "image", "07": "printer",
	"08": "storage", "0a": "data", "0b": "smartcard", "0d": "security", "0e": "video", "0f": "healthcare",
	"10": "audiovideo", "dc": "diagnostic", "e0": "wireless", "ef": "miscellaneous", "fe": "application", "ff": "vendor",
}

// New makes the Finder of the USB devices of a Linux machine in sysfs, as these folders show them. Reserve returns the
// device node of each device below /dev/bus/usb, and the variables USB_VISIBLE_DEVICES (the ids) and USB_DEVICE_PATHS.
// The nodes change whenever a device is plugged in again.
func New(roots sysfs.Roots) devices.Finder {
	return devices.NewFinder(Kind, scanner{roots: roots, devices: roots.SysPath("bus", "usb", "devices")}.scanUSBDevices)
}

// scanner reads the USB devices of a Linux machine in sysfs.
type scanner struct {
	roots   sysfs.Roots
	devices string // folder with an entry for each device
}

// scanUSBDevices reads the devices on all buses, with their nodes. The node of a device may be missing: Found.Err says
// so.
func (s scanner) scanUSBDevices(ctx context.Context) ([]devices.Found, error) {
	entries, err := os.ReadDir(s.devices)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list usb devices: %w", err)
	}
	var found []device
	var errs []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("list usb devices: %w", err)
		}
		port := e.Name()
		if strings.ContainsRune(port, ':') || strings.HasPrefix(port, "usb") || len(found) == maxDevices {
			continue // an interface, or the root hub of a bus
		}
		d, err := s.readDevice(port, entries)
		if err != nil {
			errs = append(errs, fmt.Errorf("read usb device %s: %w", port, err))
			continue
		}
		if d.class != hubClass {
			found = append(found, d)
		}
	}
	return s.toFoundDevices(found), errors.Join(errs...)
}

// device is the part of a device's entry in sysfs that is read.
type device struct {
	port, vendor, product, serial    string
	manufacturer, name, class, speed string
	busNumber, deviceNumber          string
	interfaces                       []string // classes, sorted
}

// readDevice reads the device at a port. entries are all entries of the bus: those of the device's interfaces
// are among them.
func (s scanner) readDevice(port string, entries []os.DirEntry) (device, error) {
	d := device{port: port}
	for _, field := range []struct {
		name     string
		into     *string
		required bool
	}{
		{"idVendor", &d.vendor, true}, {"idProduct", &d.product, true}, {"bDeviceClass", &d.class, true},
		{"serial", &d.serial, false}, {"manufacturer", &d.manufacturer, false}, {"product", &d.name, false},
		{"speed", &d.speed, false}, {"busnum", &d.busNumber, false}, {"devnum", &d.deviceNumber, false},
	} {
		text, err := sysfs.ReadAttribute(s.devices, port, field.name)
		if err != nil && (field.required || !errors.Is(err, fs.ErrNotExist)) {
			return device{}, err
		}
		*field.into = text
	}
	if d.class != perIface {
		return d, nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), port+":") {
			continue
		}
		if class, err := sysfs.ReadAttribute(s.devices, e.Name(), "bInterfaceClass"); err == nil && !slices.Contains(d.interfaces, class) {
			d.interfaces = append(d.interfaces, class)
		}
	}
	slices.Sort(d.interfaces)
	return d, nil
}

// toFoundDevices converts devices, and finds their nodes. Devices whose serial number is missing or not unique
// get an id with their port.
func (s scanner) toFoundDevices(found []device) []devices.Found {
	same := map[string]int{}
	for _, d := range found {
		same[d.deviceID()]++
	}
	list := make([]devices.Found, 0, len(found))
	for _, d := range found {
		id := d.deviceID()
		if d.serial == "" || same[id] > 1 {
			id = fmt.Sprintf("%s:%s@%s", d.vendor, d.product, d.port)
		}
		one := devices.Found{Device: fleet.Device{
			Kind: Kind, Vendor: d.vendor, Type: d.className(), Name: cmp.Or(d.name, d.product), ID: id, Attributes: d.attributeMap(),
		}}
		node, err := s.roots.Node("bus", "usb", numberOfNode(d.busNumber), numberOfNode(d.deviceNumber))
		if err == nil {
			one.Nodes, one.Path = []fleet.DeviceNode{node}, node.TaskPath
		}
		one.Err = err
		list = append(list, one)
	}
	return list
}

// numberOfNode returns the number of a bus or a device as it is in a path below /dev/bus/usb: with three digits.
func numberOfNode(text string) string {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%03d", n)
}

// deviceID returns the id of a device with a unique serial number.
func (d device) deviceID() string { return fmt.Sprintf("%s:%s:%s", d.vendor, d.product, d.serial) }

// className returns the name of the device's class, or of its interfaces' class if they have only one.
func (d device) className() string {
	class := d.class
	switch {
	case class == perIface && len(d.interfaces) == 1:
		class = d.interfaces[0]
	case class == perIface:
		return "composite"
	}
	return cmp.Or(classes[class], class)
}

// attributeMap returns the attributes of a device that are not empty.
func (d device) attributeMap() map[string]string {
	all := map[string]string{
		"vendor_id": d.vendor, "product_id": d.product, "serial": d.serial, "manufacturer": d.manufacturer,
		"product": d.name, "class": d.class, "interfaces": strings.Join(d.interfaces, ","), "port": d.port, "speed_mbps": d.speed,
	}
	if bus, _, ok := strings.Cut(d.port, "-"); ok {
		all["bus"] = bus
	}
	for k, v := range all {
		if v == "" {
			delete(all, k)
		}
	}
	return all
}
