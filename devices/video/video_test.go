package video_test

import (
	"path/filepath"
	"reflect"
	"testing"

	"skerry/devices"
	"skerry/devices/devicetest"
	"skerry/devices/sysfs"
	"skerry/devices/video"
	"skerry/fleet"
)

// mustRoots makes a machine with a USB camera of two nodes, a camera of a board, and one without a persistent
// name.
func mustRoots(tb testing.TB) sysfs.Roots {
	tb.Helper()
	const usb, board, bare = "devices/pci0/usb1/1-3", "devices/platform/soc/3f801000.csi", "devices/virtual/loop"
	return sysfs.Roots{
		Sys: devicetest.MustTree(tb, map[string]string{
			usb + "/idVendor": "046d\n", usb + "/idProduct": "0825\n", usb + "/serial": "9F3C\n",
			usb + "/1-3:1.0/driver":                     "-> ../../../../../bus/usb/drivers/uvcvideo",
			usb + "/1-3:1.0/video4linux/video0/name":    "C270 HD WEBCAM\n",
			usb + "/1-3:1.0/video4linux/video0/device":  "-> ../../../1-3:1.0",
			usb + "/1-3:1.0/video4linux/video10/name":   "C270 HD WEBCAM\n",
			usb + "/1-3:1.0/video4linux/video10/device": "-> ../../../1-3:1.0",
			board + "/video4linux/video2/name":          "unicam-image\n",
			board + "/video4linux/video2/device":        "-> ../../../3f801000.csi",
			bare + "/video4linux/video3/name":           "\n",
			"class/video4linux/video0":                  "-> ../../" + usb + "/1-3:1.0/video4linux/video0",
			"class/video4linux/video10":                 "-> ../../" + usb + "/1-3:1.0/video4linux/video10",
			"class/video4linux/video2":                  "-> ../../" + board + "/video4linux/video2",
			"class/video4linux/video3":                  "-> ../../" + bare + "/video4linux/video3",
			"class/video4linux/v4l-subdev0":             "",
		}),
		Dev: devicetest.MustTree(tb, map[string]string{
			"video0": "", "video2": "", "video3": "", "video10": "",
			"v4l/by-id/usb-046d_C270_9F3C-video-index0":       "-> ../../video0",
			"v4l/by-id/usb-046d_C270_9F3C-video-index1":       "-> ../../video10",
			"v4l/by-path/pci-0000:00:14.0-usb-0-video-index0": "-> ../../video0",
			"v4l/by-path/platform-3f801000.csi-video-index0":  "-> ../../video2",
		}),
	}
}

func TestConformance(t *testing.T) {
	roots := mustRoots(t)
	devicetest.Run(t, func(testing.TB) devices.Finder { return video.New(roots) })
}

// TestOnThisMachine reads the devices of the machine that runs the test.
func TestOnThisMachine(t *testing.T) { devicetest.RunOnMachine(t, video.New(sysfs.Roots{})) }

func TestFind(t *testing.T) {
	found, err := video.New(mustRoots(t)).Find(t.Context())
	want := []fleet.Device{
		{Kind: "video", Vendor: "video", Type: "video", Name: "unicam-image", ID: "platform-3f801000.csi", Attributes: map[string]string{"name": "unicam-image"}},
		{Kind: "video", Vendor: "046d", Type: "video", Name: "C270 HD WEBCAM", ID: "usb-046d_C270_9F3C", Attributes: map[string]string{
			"name": "C270 HD WEBCAM", "driver": "uvcvideo", "vendor_id": "046d", "product_id": "0825", "serial": "9F3C",
		}},
		{Kind: "video", Vendor: "video", Type: "video", Name: "video3", ID: "video3", Attributes: map[string]string{"name": "video3"}},
	}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
}

// TestReserve gives a task all nodes of a camera, and the path of the one with pictures.
func TestReserve(t *testing.T) {
	roots := mustRoots(t)
	r, err := video.New(roots).Reserve(t.Context(), []string{"usb-046d_C270_9F3C"})
	want := devices.Reservation{
		Nodes: []fleet.DeviceNode{
			{HostPath: filepath.Join(roots.Dev, "video0"), TaskPath: "/dev/video0", Permissions: "rwm"},
			{HostPath: filepath.Join(roots.Dev, "video10"), TaskPath: "/dev/video10", Permissions: "rwm"},
		},
		Env: map[string]string{"VIDEO_VISIBLE_DEVICES": "usb-046d_C270_9F3C", "VIDEO_DEVICE_PATHS": "/dev/video0"},
	}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
}
