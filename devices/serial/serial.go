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

// New makes the Finder of a Linux machine's serial ports, below these roots. Reserve returns the nodes of the ports,
// and the variables SERIAL_VISIBLE_DEVICES (the ids) and SERIAL_DEVICE_PATHS (/dev/serial/by-id/ID).
func New(roots sysfs.Roots) devices.Finder {
	return devices.NewFinder(Kind, scanner{roots}.scanSerialPorts)
}

// scanner reads the serial ports of a Linux machine.
type scanner struct{ roots sysfs.Roots }

// scanSerialPorts reads all ports. It skips a dangling link, which an adapter leaves when it is unplugged.
func (s scanner) scanSerialPorts(ctx context.Context) ([]devices.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list serial ports: %w", err)
	}
	links, err := sysfs.Names(s.roots.DevPath("serial", "by-id"))
	if err != nil {
		return nil, err
	}
	var found []devices.Found
	for _, link := range links {
		real, err := filepath.EvalSymlinks(s.roots.DevPath("serial", "by-id", link))
		if err != nil || sysfs.Printable(link) != link {
			continue
		}
		tty := filepath.Base(real)
		node, err := s.roots.Node(tty)
		if err != nil {
			continue
		}
		byID := node
		byID.TaskPath = filepath.Join("/dev/serial/by-id", link)
		found = append(found, devices.Found{
			Device: s.describeDevice(link, tty), Nodes: []fleet.DeviceNode{node, byID}, Path: byID.TaskPath,
		})
	}
	return found, nil
}

// describeDevice returns the port with its adapter's attributes in sysfs, without the tty's name, which changes with
// each boot.
func (s scanner) describeDevice(link, tty string) fleet.Device {
	d := fleet.Device{Kind: Kind, Vendor: Kind, Type: Kind, Name: link, ID: link}
	attributes := map[string]string{
		"path": "/dev/serial/by-id/" + link, "driver": sysfs.Target(s.roots.SysPath("class", "tty", tty, "device", "driver")),
	}
	if _, rest, ok := strings.Cut(link, "-if"); ok {
		attributes["interface"] = rest
	}
	if usb := s.roots.Ancestor(s.roots.SysPath("class", "tty", tty, "device"), "idVendor", "idProduct"); usb != "" {
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
