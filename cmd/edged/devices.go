package edged

import (
	"skerry/devices"
	"skerry/devices/accelerator"
	"skerry/devices/fpga"
	"skerry/devices/gpio"
	"skerry/devices/nvidia"
	"skerry/devices/serial"
	"skerry/devices/sysfs"
	"skerry/devices/usb"
	"skerry/devices/video"
)

// deviceKinds makes the finders of the devices that this release knows.
func deviceKinds() []devices.Finder {
	roots := sysfs.Roots{}
	return []devices.Finder{
		nvidia.New(nvidia.Config{Roots: roots}), accelerator.New(roots), fpga.New(roots), gpio.New(roots),
		serial.New(roots), usb.New(roots), video.New(roots),
	}
}
