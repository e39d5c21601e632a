// Package fpga finds FPGAs in /sys/class/fpga_region, and gives tasks their device nodes. It starts no
// goroutine, stores nothing, and opens no device.
//
// A region that contains device nodes (the kernel's DFL framework: dfl-fme.0, dfl-port.0) gives them to its task.
// The ID of a region is the address of its hardware (0000:3b:00.0) and its name there.
package fpga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"skerry/devices"
	"skerry/devices/sysfs"
	"skerry/fleet"
)

// Kind is the kind of the devices found here. It is their type as well.
const Kind = "fpga"

// New makes the Finder of a Linux machine's FPGA regions, below these roots. Reserve returns the nodes of the regions,
// and the variables FPGA_VISIBLE_DEVICES (the ids) and FPGA_DEVICE_PATHS (of the first node of each).
func New(roots sysfs.Roots) devices.Finder {
	return devices.NewFinder(Kind, scanner{roots}.scanFPGARegions)
}

// scanner reads the FPGA regions of a Linux machine.
type scanner struct{ roots sysfs.Roots }

// scanFPGARegions reads all regions.
func (s scanner) scanFPGARegions(ctx context.Context) ([]devices.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list fpga regions: %w", err)
	}
	regions, err := sysfs.Names(s.roots.SysPath("class", "fpga_region"))
	if err != nil {
		return nil, err
	}
	var found []devices.Found
	var errs []error
	for _, region := range regions {
		one, err := s.readRegion(region)
		if err != nil {
			errs = append(errs, fmt.Errorf("read fpga region %s: %w", region, err))
			continue
		}
		found = append(found, one)
	}
	return found, errors.Join(errs...)
}

// readRegion reads a region with the device nodes of the features in it.
func (s scanner) readRegion(region string) (devices.Found, error) {
	dir := s.roots.SysPath("class", "fpga_region", region)
	one := devices.Found{Device: fleet.Device{Kind: Kind, Vendor: Kind, Type: Kind, Name: region, ID: region}}
	attributes := map[string]string{"compat_id": sysfs.Attribute(dir, "compat_id")}
	features, err := sysfs.Names(dir, "dfl-")
	if err != nil {
		return one, err
	}
	for _, feature := range features {
		if sysfs.Attribute(dir, feature, "dev") == "" {
			continue // not a device with a node
		}
		node, err := s.roots.Node(feature)
		if err != nil {
			return one, err
		}
		one.Nodes = append(one.Nodes, node)
		one.Path = cmp.Or(one.Path, node.TaskPath)
		attributes["bitstream_id"] = cmp.Or(attributes["bitstream_id"], sysfs.Attribute(dir, feature, "bitstream_id"))
	}
	if pci := s.roots.Ancestor(dir, "vendor", "device", "class"); pci != "" {
		address := filepath.Base(pci)
		one.ID = address + "/" + region
		attributes["pci_address"] = address
		attributes["vendor_id"] = strings.TrimPrefix(sysfs.Attribute(pci, "vendor"), "0x")
		attributes["device_id"] = strings.TrimPrefix(sysfs.Attribute(pci, "device"), "0x")
		attributes["driver"] = sysfs.Target(pci, "driver")
		one.Vendor = cmp.Or(attributes["vendor_id"], one.Vendor)
		one.Name = cmp.Or(attributes["device_id"], one.Name)
	}
	one.Attributes = sysfs.WithoutEmpty(attributes)
	return one, nil
}
