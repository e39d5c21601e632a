// Package gpio finds GPIO chips in /sys/bus/gpio/devices, and gives tasks their device nodes. It starts no
// goroutine, stores nothing, and opens no chip.
//
// The ID of a chip is the name of the hardware that it belongs to, such as fe200000.gpio: the number of a
// gpiochip changes with the order in which drivers are loaded. If one piece of hardware has several chips,
// #1, #2 … follow the name for the second and later ones, in the order of their numbers.
package gpio

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
const Kind = "gpio"

const chipPrefix = "gpiochip"

// New makes the Finder of a Linux machine's GPIO chips, below these roots. Reserve returns the nodes of the chips, and
// the variables GPIO_VISIBLE_DEVICES (the ids) and GPIO_DEVICE_PATHS (such as /dev/gpiochip0).
func New(roots sysfs.Roots) devices.Finder {
	return devices.NewFinder(Kind, scanner{roots}.scanGPIOChips)
}

// scanner reads the GPIO chips of a Linux machine.
type scanner struct{ roots sysfs.Roots }

// scanGPIOChips reads all chips that have a node.
func (s scanner) scanGPIOChips(ctx context.Context) ([]devices.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list gpio chips: %w", err)
	}
	chips, err := sysfs.Names(s.roots.SysPath("bus", "gpio", "devices"), chipPrefix)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(chips, func(a, b string) int { return cmp.Compare(numberOf(a), numberOf(b)) })
	count := map[string]int{} // chips so far, by piece of hardware
	var found []devices.Found
	for _, chip := range chips {
		node, err := s.roots.Node(chip)
		if err != nil {
			continue
		}
		d := s.describeDevice(chip)
		hardware := d.ID
		if n := count[hardware]; n > 0 {
			d.ID = fmt.Sprintf("%s#%d", hardware, n)
		}
		count[hardware]++
		found = append(found, devices.Found{Device: d, Nodes: []fleet.DeviceNode{node}, Path: node.TaskPath})
	}
	return found, nil
}

// numberOf returns the number of a chip, such as 4 of gpiochip4.
func numberOf(chip string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(chip, chipPrefix))
	if err != nil {
		return -1
	}
	return n
}

// describeDevice returns a chip with its attributes in sysfs. The label and the number of lines are there only if the
// kernel also has the older GPIO interface.
func (s scanner) describeDevice(chip string) fleet.Device {
	d := fleet.Device{Kind: Kind, Vendor: Kind, Type: Kind, Name: chip, ID: chip}
	real, err := filepath.EvalSymlinks(s.roots.SysPath("bus", "gpio", "devices", chip))
	if err != nil {
		return d
	}
	hardware := filepath.Dir(real)
	if name := sysfs.Printable(filepath.Base(hardware)); name != "" {
		d.ID, d.Name = name, name
	}
	attributes := map[string]string{
		"driver": sysfs.Target(hardware, "driver"), "compatible": sysfs.Attribute(hardware, "of_node", "compatible"),
	}
	older, err := sysfs.Names(filepath.Join(hardware, "gpio"), chipPrefix)
	if err == nil && len(older) == 1 {
		attributes["label"] = sysfs.Attribute(hardware, "gpio", older[0], "label")
		attributes["lines"] = sysfs.Attribute(hardware, "gpio", older[0], "ngpio")
		d.Name = cmp.Or(attributes["label"], d.Name)
	}
	d.Vendor = cmp.Or(attributes["driver"], d.Vendor)
	d.Attributes = sysfs.WithoutEmpty(attributes)
	return d
}
