package oci

import (
	"context"

	"skerry/drivers"
)

// TestImageBytes and TestImageFiles are the bounds of Bounded.
const (
	TestImageBytes = 1 << 20
	TestImageFiles = 100
)

// Bounded lowers the bounds of images.
func Bounded(i *Isolation) *Isolation {
	i.maxBytes, i.maxFiles = TestImageBytes, TestImageFiles
	return i
}

// UnpackImage unpacks an image and returns the folder of its root.
func (i *Isolation) UnpackImage(ctx context.Context, cfg drivers.TaskConfig, name string) (string, error) {
	_, root, err := i.unpackImage(ctx, cfg, name)
	return root, err
}
