// Package accelerator finds chips that compute neural networks: those in the kernel's class accel, and those
// whose drivers have a class of their own (Coral: apex, Hailo: hailo_chardev). It gives tasks their device
// nodes, starts no goroutine, stores nothing, and opens no device.
//
// The ID of an accelerator is its PCI address. A Coral stick on USB is found as a device of the kind usb.
package accelerator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"skerry/devices"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// Kind is the kind of the devices found here. It is their type as well.
const Kind = "accelerator"

// classes are the classes of sysfs with accelerators, the prefix of names there, and the folder of their nodes
// below /dev.
var classes = []struct{ class, prefix, folder string }{
	{"accel", "accel", "accel"}, {"apex", "apex_", ""}, {"hailo_chardev", "hailo", ""},
}

// model is an accelerator that is known by its PCI ids.
type model struct {
	vendor, name string
	driver       string // kernel modules that it needs
}

// models are known accelerators by VENDOR:DEVICE.
var models = map[string]model{
	"1ac1:089a": {"google", "Coral Edge TPU", "gasket and apex"},
	"1e60:2864": {"hailo", "Hailo-8", "hailo_pci"},
	"1e60:45c4": {"hailo", "Hailo-10H", "hailo1x_pci"},
	"8086:7d1d": {"intel", "NPU (Meteor Lake)", "intel_vpu"},
	"8086:ad1d": {"intel", "NPU (Arrow Lake)", "intel_vpu"},
	"8086:643e": {"intel", "NPU (Lunar Lake)", "intel_vpu"},
	"1022:1502": {"amd", "XDNA NPU (Phoenix)", "amdxdna"},
	"1022:17f0": {"amd", "XDNA NPU (Strix)", "amdxdna"},
	"17cb:a100": {"qualcomm", "Cloud AI 100", "qaic"},
	"1da3:1000": {"habana", "Gaudi", "habanalabs"},
	"1da3:1020": {"habana", "Gaudi 2", "habanalabs"},
}

// New makes the Finder of a Linux machine's accelerators, below these roots. Reserve returns the nodes of the
// accelerators, and the variables ACCELERATOR_VISIBLE_DEVICES (the ids) and ACCELERATOR_DEVICE_PATHS (such as
// /dev/apex_0).
func New(roots sysfs.Roots) devices.Finder {
	return devices.NewFinder(Kind, scanner{roots}.scanAccelerators)
}

// scanner reads the accelerators of a Linux machine.
type scanner struct{ roots sysfs.Roots }

// scanAccelerators reads the accelerators of all classes, and reports known ones without a driver as errors.
func (s scanner) scanAccelerators(ctx context.Context) ([]devices.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list accelerators: %w", err)
	}
	var found []devices.Found
	var errs []error
	for _, c := range classes {
		names, err := sysfs.Names(s.roots.SysPath("class", c.class), c.prefix)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			node, err := s.roots.Node(c.folder, name)
			if err != nil {
				errs = append(errs, fmt.Errorf("read accelerator %s: %w", name, err))
				continue
			}
			found = append(found, devices.Found{
				Device: s.describeDevice(s.roots.SysPath("class", c.class, name), name), Nodes: []fleet.DeviceNode{node}, Path: node.TaskPath,
			})
		}
	}
	return found, errors.Join(append(errs, s.findDriverless(found)...)...)
}

// describeDevice returns the accelerator of a class entry, with the attributes of its PCI device.
func (s scanner) describeDevice(dir, name string) fleet.Device {
	d := fleet.Device{Kind: Kind, Vendor: Kind, Type: Kind, Name: name, ID: name}
	pci := s.roots.Ancestor(filepath.Join(dir, "device"), "vendor", "device")
	if pci == "" {
		return d
	}
	vendor, device := pciIDs(pci)
	m := models[vendor+":"+device]
	d.ID, d.Vendor, d.Name = filepath.Base(pci), cmp.Or(m.vendor, vendor), cmp.Or(m.name, device)
	d.Attributes = sysfs.WithoutEmpty(map[string]string{
		"pci_address": d.ID, "vendor_id": vendor, "device_id": device, "driver": sysfs.Target(pci, "driver"),
	})
	return d
}

// pciIDs returns the ids of a PCI device as four digits each.
func pciIDs(dir string) (vendor, device string) {
	return strings.TrimPrefix(sysfs.Attribute(dir, "vendor"), "0x"), strings.TrimPrefix(sysfs.Attribute(dir, "device"), "0x")
}

// findDriverless returns an error for each known accelerator on the PCI bus that is not among found.
func (s scanner) findDriverless(found []devices.Found) []error {
	addresses, err := sysfs.Names(s.roots.SysPath("bus", "pci", "devices"))
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, address := range addresses {
		vendor, device := pciIDs(s.roots.SysPath("bus", "pci", "devices", address))
		m, known := models[vendor+":"+device]
		if known && !slices.ContainsFunc(found, func(d devices.Found) bool { return d.ID == address }) {
			errs = append(errs, fmt.Errorf("accelerator %s (%s) has no driver: load %s", address, m.name, m.driver))
		}
	}
	return errs
}
