package qemu

import "skerry/drivers"

// FindImage finds and checks the image of a task.
func (d *Driver) FindImage(image string, cfg drivers.TaskConfig) (path, format string, err error) {
	return d.findImage(image, cfg)
}

// MonitorPath is the path of a machine's monitor.
var MonitorPath = monitorPath

// FormatOf returns the format of an image.
var FormatOf = formatOf
