// Package usb finds USB devices in sysfs: what is plugged in, not the hubs that
// it is plugged into. The fingerprint calls it at each refresh. It starts no
// goroutine, keeps nothing, and opens no device.
//
// A device's ID is VENDOR:PRODUCT:SERIAL where it has a serial number of its own,
// and so stays the same wherever it is plugged in; else, or where two have the
// same, VENDOR:PRODUCT@PORT, which stays the same for as long as it is plugged in
// there. Nothing is told that changes with each plugging in or boot.
package usb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"skerry/fleet"
)

// Kind of the devices found here.
const Kind = "usb"

const (
	maxDevices = 512 // more are left out
	maxText    = 128 // bytes of what a device says of itself; a device may say anything
	hubClass   = "09"
	perIface   = "00" // the class is said by each interface
)

// classes are the names of USB classes (bDeviceClass, bInterfaceClass).
var classes = map[string]string{
	"01": "audio", "02": "communications", "03": "hid", "05": "physical", "06": "image", "07": "printer",
	"08": "storage", "0a": "data", "0b": "smartcard", "0d": "security", "0e": "video", "0f": "healthcare",
	"10": "audiovideo", "dc": "diagnostic", "e0": "wireless", "ef": "miscellaneous", "fe": "application", "ff": "vendor",
}

// Finder reads the USB devices of a Linux machine.
type Finder struct {
	devices string // the folder with an entry for each device
}

// New makes a Finder of the sysfs at root ("": /sys).
func New(root string) *Finder {
	if root == "" {
		root = "/sys"
	}
	return &Finder{devices: filepath.Join(root, "bus", "usb", "devices")}
}

// Kind returns "usb".
func (f *Finder) Kind() string { return Kind }

// Find returns the devices on all buses, ordered by ID. A machine without USB has
// none. What cannot be read, as when it is unplugged at that moment, is left out
// and named in the error.
func (f *Finder) Find(ctx context.Context) ([]fleet.Device, error) {
	entries, err := os.ReadDir(f.devices)
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
		d, err := f.readDevice(port, entries)
		if err != nil {
			errs = append(errs, fmt.Errorf("read usb device %s: %w", port, err))
			continue
		}
		if d.class != hubClass {
			found = append(found, d)
		}
	}
	return toFleetDevices(found), errors.Join(errs...)
}

// device is what sysfs says of a device.
type device struct {
	port, vendor, product, serial    string
	manufacturer, name, class, speed string
	interfaces                       []string // classes, sorted
}

// readDevice reads a device; entries are all of the bus, among them its interfaces.
func (f *Finder) readDevice(port string, entries []os.DirEntry) (device, error) {
	d := device{port: port}
	for _, field := range []struct {
		name     string
		into     *string
		required bool
	}{
		{"idVendor", &d.vendor, true}, {"idProduct", &d.product, true}, {"bDeviceClass", &d.class, true},
		{"serial", &d.serial, false}, {"manufacturer", &d.manufacturer, false}, {"product", &d.name, false},
		{"speed", &d.speed, false},
	} {
		text, err := f.readAttribute(port, field.name)
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
		if class, err := f.readAttribute(e.Name(), "bInterfaceClass"); err == nil && !slices.Contains(d.interfaces, class) {
			d.interfaces = append(d.interfaces, class)
		}
	}
	slices.Sort(d.interfaces)
	return d, nil
}

// readAttribute reads an attribute file, and makes what is in it fit to be shown.
func (f *Finder) readAttribute(entry, name string) (string, error) {
	file, err := os.Open(filepath.Join(f.devices, entry, name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxText))
	if err != nil {
		return "", err
	}
	text := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), ""))
	return strings.TrimSpace(text), nil
}

// toFleetDevices makes what the fleet is told.
func toFleetDevices(found []device) []fleet.Device {
	same := map[string]int{}
	for _, d := range found {
		same[d.deviceID()]++
	}
	list := make([]fleet.Device, 0, len(found))
	for _, d := range found {
		id := d.deviceID()
		if d.serial == "" || same[id] > 1 {
			id = fmt.Sprintf("%s:%s@%s", d.vendor, d.product, d.port)
		}
		list = append(list, fleet.Device{
			Kind: Kind, Vendor: d.vendor, Type: d.className(), Name: cmp.Or(d.name, d.product), ID: id, Attributes: d.attributeMap(),
		})
	}
	slices.SortFunc(list, func(a, b fleet.Device) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (d device) deviceID() string { return fmt.Sprintf("%s:%s:%s", d.vendor, d.product, d.serial) }

// className is the name of the class: the device's, or its only interfaces'.
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
