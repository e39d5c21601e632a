// Package video finds cameras and capture cards in /sys/class/video4linux, and gives tasks their device nodes.
// It starts no goroutine, stores nothing, and opens no device.
//
// One camera often has several nodes (pictures, metadata): they are one device here. Its ID is its name in
// /dev/v4l/by-id, which has its serial number; else its name in /dev/v4l/by-path; else the name of its first
// node, such as video0.
package video

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"skerry/devices"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// Kind is the kind of the devices found here. It is their type as well.
const Kind = "video"

// New makes the Finder of the video devices of a Linux machine, as these folders show them. Reserve returns all nodes
// of the devices, and the variables VIDEO_VISIBLE_DEVICES (the ids) and VIDEO_DEVICE_PATHS (of the first node of each,
// such as /dev/video0).
func New(roots sysfs.Roots) devices.Finder {
	return devices.NewFinder(Kind, scanner{roots}.scanVideoDevices)
}

// scanner reads the video devices of a Linux machine.
type scanner struct{ roots sysfs.Roots }

// scanVideoDevices reads all nodes and puts those of one piece of hardware together.
func (s scanner) scanVideoDevices(ctx context.Context) ([]devices.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list video devices: %w", err)
	}
	names, err := sysfs.Names(s.roots.SysPath("class", "video4linux"), "video")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(numberOf(a), numberOf(b)) })
	ids := s.persistentIDs()
	var order []string
	byHardware := map[string]*devices.Found{}
	for _, name := range names {
		node, err := s.roots.Node(name)
		if err != nil {
			continue // just unplugged
		}
		hardware, err := filepath.EvalSymlinks(s.roots.SysPath("class", "video4linux", name, "device"))
		if err != nil {
			hardware = name
		}
		d := byHardware[hardware]
		if d == nil {
			d = &devices.Found{Device: s.describeDevice(name, cmp.Or(ids[name], name)), Path: node.TaskPath}
			byHardware[hardware], order = d, append(order, hardware)
		}
		d.Nodes = append(d.Nodes, node)
	}
	found := make([]devices.Found, 0, len(order))
	for _, hardware := range order {
		found = append(found, *byHardware[hardware])
	}
	return found, nil
}

// numberOf returns the number of a node's name, such as 10 of video10.
func numberOf(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "video"))
	if err != nil {
		return -1
	}
	return n
}

// persistentIDs returns the id of each node that has one, by the name of the node: by-id comes before by-path.
func (s scanner) persistentIDs() map[string]string {
	ids := map[string]string{}
	for _, folder := range []string{"by-id", "by-path"} {
		links, err := sysfs.Names(s.roots.DevPath("v4l", folder))
		if err != nil {
			continue
		}
		for _, link := range links {
			name := sysfs.Target(s.roots.DevPath("v4l", folder, link))
			if _, known := ids[name]; known || sysfs.Printable(link) != link {
				continue
			}
			id := link
			if i := strings.LastIndex(link, "-video-index"); i > 0 {
				id = link[:i]
			}
			ids[name] = id
		}
	}
	return ids
}

// describeDevice returns the device of a node with what sysfs says of it.
func (s scanner) describeDevice(name, id string) fleet.Device {
	dir := s.roots.SysPath("class", "video4linux", name)
	title := cmp.Or(sysfs.Attribute(dir, "name"), name)
	d := fleet.Device{Kind: Kind, Vendor: Kind, Type: Kind, Name: title, ID: id}
	attributes := map[string]string{"name": title, "driver": sysfs.Target(dir, "device", "driver")}
	if usb := s.roots.Ancestor(filepath.Join(dir, "device"), "idVendor", "idProduct"); usb != "" {
		attributes["vendor_id"], attributes["product_id"] = sysfs.Attribute(usb, "idVendor"), sysfs.Attribute(usb, "idProduct")
		attributes["serial"], attributes["manufacturer"] = sysfs.Attribute(usb, "serial"), sysfs.Attribute(usb, "manufacturer")
		d.Vendor = cmp.Or(attributes["vendor_id"], d.Vendor)
	}
	d.Attributes = sysfs.WithoutEmpty(attributes)
	return d
}
