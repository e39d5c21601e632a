package edged

import (
	"path/filepath"
	"strings"

	"skerry/fleet"
)

// hostVolumes reads the values of --host-volume: NAME=PATH, or NAME=PATH:ro for a read-only volume.
func hostVolumes(values []string) (map[string]fleet.HostVolume, error) {
	if len(values) == 0 {
		return nil, nil
	}
	volumes := make(map[string]fleet.HostVolume, len(values))
	for _, value := range values {
		name, path, ok := strings.Cut(value, "=")
		path, readOnly := strings.CutSuffix(path, ":ro")
		if !readOnly {
			path = strings.TrimSuffix(path, ":rw")
		}
		switch {
		case !ok || !fleet.IsName(name, 128, "_.[]-"):
			return nil, fleet.Errorf(fleet.CodeInvalid, "host volume %q: not NAME=PATH or NAME=PATH:ro", value)
		case !filepath.IsAbs(path) || path != filepath.Clean(path):
			return nil, fleet.Errorf(fleet.CodeInvalid, "host volume %s: %q is not an absolute, clean path", name, path)
		}
		if _, twice := volumes[name]; twice {
			return nil, fleet.Errorf(fleet.CodeInvalid, "host volume %s: it is given twice", name)
		}
		volumes[name] = fleet.HostVolume{Path: path, ReadOnly: readOnly}
	}
	return volumes, nil
}
