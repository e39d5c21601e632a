package admission

import (
	"path"
	"regexp"
	"slices"
	"strconv"

	"skerry/fleet"
)

// Bounds of a dynamic host volume.
const (
	maxVolumeParameters   = 32
	maxVolumeText         = 1024 // bytes of a parameter's name or value, and of a path
	maxVolumeCapabilities = 16
	maxVolumeConstraints  = 64
)

var volumeIndex = regexp.MustCompile(`\[[0-9]{1,6}\]$`)

// isVolumeName reports whether a name has 1 to 120 characters, and perhaps an index.
func isVolumeName(name string) bool {
	return fleet.IsName(volumeIndex.ReplaceAllLiteralString(name, ""), 120, "._-")
}

// CheckVolume returns what is wrong with a dynamic host volume, as a client asks for it. Package placement checks its
// constraints.
func CheckVolume(v *fleet.Volume) error {
	refuse := func(hint, format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "volume %q: "+format, append([]any{v.Name}, args...)...).WithHint("%s", hint)
	}
	switch {
	case !isVolumeName(v.Name):
		return fleet.Errorf(fleet.CodeInvalid, "volume %.140q: a name has 1 to 120 letters, digits, '.', '-' and '_', and may end with an index such as [2]", v.Name)
	case v.Registered && v.NodeID == "":
		return refuse("write node_id", "it needs the node where its folder is")
	case v.Registered && (!path.IsAbs(v.HostPath) || path.Clean(v.HostPath) != v.HostPath || v.HostPath == "/" || len(v.HostPath) > maxVolumeText):
		return refuse("write host_path = \"/srv/data\"", "it needs the absolute path of its folder, not %.140q", v.HostPath)
	case v.Registered && v.PluginID != "":
		return refuse("leave out plugin_id, or use skerry volume create", "a plugin has not made its folder")
	case !v.Registered && v.PluginID != fleet.VolumePluginMkdir:
		return refuse("write plugin_id = \"mkdir\"", "there is no plugin %.140q", v.PluginID)
	case len(v.RequestedCapabilities) == 0 || len(v.RequestedCapabilities) > maxVolumeCapabilities:
		return refuse("write a block capability with access_mode and attachment_mode", "it has 1 to %d capabilities, not %d", maxVolumeCapabilities, len(v.RequestedCapabilities))
	case v.RequestedCapacityMinBytes < 0 || v.RequestedCapacityMaxBytes < 0 ||
		v.RequestedCapacityMaxBytes > 0 && v.RequestedCapacityMaxBytes < v.RequestedCapacityMinBytes:
		return refuse("capacity_max is at least capacity_min", "capacity from %d to %d bytes", v.RequestedCapacityMinBytes, v.RequestedCapacityMaxBytes)
	case len(v.Constraints) > maxVolumeConstraints:
		return refuse("use fewer", "it has %d constraints, at most %d are read", len(v.Constraints), maxVolumeConstraints)
	}
	for _, c := range v.RequestedCapabilities {
		if c.AttachmentMode != fleet.AttachFileSystem || !slices.Contains([]string{fleet.AccessReader, fleet.AccessWriter, fleet.AccessSingleWriter, fleet.AccessMultiWriter}, c.AccessMode) {
			return refuse("write attachment_mode = \"file-system\" and access_mode = \"single-node-writer\"", "it cannot be used with attachment_mode %.40q and access_mode %.40q", c.AttachmentMode, c.AccessMode)
		}
	}
	return volumeParameters(v, refuse)
}

// volumeParameters checks the parameters of the plugin mkdir.
func volumeParameters(v *fleet.Volume, refuse func(hint, format string, args ...any) error) error {
	if len(v.Parameters) > maxVolumeParameters {
		return refuse("use fewer", "it has %d parameters, at most %d are read", len(v.Parameters), maxVolumeParameters)
	}
	for name, value := range v.Parameters {
		if len(name) > maxVolumeText || len(value) > maxVolumeText {
			return refuse("use shorter ones", "a parameter has more than %d bytes", maxVolumeText)
		}
		var err error
		switch name {
		case "mode":
			_, err = strconv.ParseUint(value, 8, 9)
		case "uid", "gid":
			_, err = strconv.ParseUint(value, 10, 31)
		default:
			return refuse("mkdir has the parameters mode, uid and gid", "there is no parameter %.140q", name)
		}
		if err != nil {
			return refuse("mode is such as 0750, uid and gid are numbers", "parameter %s is not %.140q", name, value)
		}
	}
	return nil
}
