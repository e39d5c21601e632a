package docker

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"skerry/drivers"
	"skerry/fleet"
)

// maxProfileBytes bounds the file of a seccomp profile. Docker's default profile has 20 KiB.
const maxProfileBytes = 1 << 20

// resolveProfiles returns the elements of security_opt in the daemon's form. In a job, seccomp names a file, as with docker run: Docker's
// daemon takes its content, and Podman's its path. A relative path lies in the task's folder.
func (d *Driver) resolveProfiles(security []string, cfg drivers.TaskConfig) ([]string, error) {
	security = slices.Clone(security)
	for i, option := range security {
		name, isProfile := strings.CutPrefix(option, "seccomp=")
		if old, isOld := strings.CutPrefix(option, "seccomp:"); isOld {
			name, isProfile = old, true
		}
		if !isProfile || slices.Contains([]string{"", "unconfined", "builtin"}, name) || strings.HasPrefix(name, "{") {
			continue
		}
		file, _ := resolveInTask(cfg, name)
		profile, err := readProfile(file)
		if err != nil {
			return nil, fleet.Errorf(fleet.CodeInvalid, "security_opt: read seccomp profile %s: %w", name, err).
				WithHint("name a file of the task, such as local/profile.json, or an absolute path of the machine")
		}
		if d.quirks.podman {
			profile = file
		}
		security[i] = "seccomp=" + profile
	}
	return security, nil
}

// readProfile returns the content of a file that must be JSON. The error says nothing of the content.
func readProfile(file string) (string, error) {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no file")
	}
	if err != nil {
		return "", err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProfileBytes))
	if err == nil && !json.Valid(b) {
		err = errors.New("it is not JSON")
	}
	return string(b), err
}
