// Package serial finds the serial ports of USB adapters in /dev/serial/by-id, and gives tasks their device
// nodes. It starts no goroutine, stores nothing, and opens no port.
//
// The ID of a port is its name there, which has the adapter's serial number: it stays the same at every USB
// port and in each order of plugging in. A task gets the port under that path and as /dev/ttyUSB0.
package serial

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"skerry/devices"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// Kind is the kind of the devices found here. It is their type as well.
const Kind = "serial"

// Finder finds the serial ports of a Linux machine. It implements devices.Finder.
type Finder struct{ roots sysfs.Roots }

// New makes a Finder for these folders.
func New(roots sysfs.Roots) *Finder { return &Finder{roots: roots} }

// Kind returns "serial".
func (f *Finder) Kind() string { return Kind }

// Find returns the ports that have a name in /dev/serial/by-id, ordered by ID.
func (f *Finder) Find(ctx context.Context) ([]fleet.Device, error) {
	found, err := f.scanDevices(ctx)
	return devices.SortFound(found), err
}

// Reserve returns the nodes of the ports, and the variables SERIAL_VISIBLE_DEVICES (the ids) and
// SERIAL_DEVICE_PATHS (/dev/serial/by-id/ID).
func (f *Finder) Reserve(ctx context.Context, ids []string) (devices.Reservation, error) {
	found, err := f.scanDevices(ctx)
	if ctx.Err() != nil {
		return devices.Reservation{}, err
	}
	return devices.ReserveFound(Kind, found, ids, err)
}

// scanDevices reads all ports. A link that leads nowhere is left by an adapter that was just unplugged.
func (f *Finder) scanDevices(ctx context.Context) ([]devices.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list serial ports: %w", err)
	}
	links, err := sysfs.Names(f.roots.DevPath("serial", "by-id"))
	if err != nil {
		return nil, err
	}
	var found []devices.Found
	for _, link := range links {
		real, err := filepath.EvalSymlinks(f.roots.DevPath("serial", "by-id", link))
		if err != nil || sysfs.Printable(link) != link {
			continue
		}
		tty := filepath.Base(real)
		node, err := f.roots.Node(tty)
		if err != nil {
			continue
		}
		byID := node
		byID.TaskPath = filepath.Join("/dev/serial/by-id", link)
		found = append(found, devices.Found{
			Device: f.describeDevice(link, tty), Nodes: []devices.Node{node, byID}, Path: byID.TaskPath,
		})
	}
	return found, nil
}

// describeDevice returns the port with what sysfs says of its adapter. The attributes leave out the name of the tty,
// which changes with each boot.
func (f *Finder) describeDevice(link, tty string) fleet.Device {
	d := fleet.Device{Kind: Kind, Vendor: Kind, Type: Kind, Name: link, ID: link}
	attributes := map[string]string{
		"path": "/dev/serial/by-id/" + link, "driver": sysfs.Target(f.roots.SysPath("class", "tty", tty, "device", "driver")),
	}
	if _, rest, ok := strings.Cut(link, "-if"); ok {
		attributes["interface"] = rest
	}
	if usb := f.roots.Ancestor(f.roots.SysPath("class", "tty", tty, "device"), "idVendor", "idProduct"); usb != "" {
		for name, file := range map[string]string{
			"vendor_id": "idVendor", "product_id": "idProduct", "serial": "serial", "manufacturer": "manufacturer", "product": "product",
		} {
			attributes[name] = sysfs.Attribute(usb, file)
		}
		d.Vendor = cmp.Or(attributes["vendor_id"], d.Vendor)
		d.Name = cmp.Or(attributes["product"], d.Name)
	}
	d.Attributes = sysfs.WithoutEmpty(attributes)
	return d
}
