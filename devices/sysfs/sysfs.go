// Package sysfs reads the kernel's description of devices, for the kinds of devices that are found in sysfs. It starts
// no goroutine, stores nothing, opens no device, and bounds everything that it reads.
package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"skerry/devices"
	"skerry/fleet"
)

const (
	maxText    = 128 // bytes of an attribute, whose text a device may choose
	maxEntries = 512 // entries of a folder that are read
	maxDepth   = 16  // parents of a device that are looked at
)

// Roots are the folders of sysfs and of device nodes. Tests make their own.
type Roots struct {
	Sys string // "": /sys
	Dev string // "": /dev
}

// SysPath returns a path below sysfs.
func (r Roots) SysPath(elem ...string) string {
	return filepath.Join(append([]string{cmp.Or(r.Sys, "/sys")}, elem...)...)
}

// DevPath returns a path below the folder of device nodes.
func (r Roots) DevPath(elem ...string) string {
	return filepath.Join(append([]string{cmp.Or(r.Dev, "/dev")}, elem...)...)
}

// Names returns the names in a folder that begin with one of prefixes (any if none is given), in order. A missing
// folder has no names.
func Names(dir string, prefixes ...string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var names []string
	for _, e := range entries {
		if len(names) == maxEntries {
			break
		}
		if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.Name(), p) }) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// ReadAttribute reads a file of sysfs as printable text of at most 128 bytes.
func ReadAttribute(elem ...string) (string, error) {
	f, err := os.Open(filepath.Join(elem...))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	if err != nil {
		return "", err
	}
	return Printable(string(b)), nil
}

// Attribute reads a file of sysfs as ReadAttribute does; "" if it cannot be read.
func Attribute(elem ...string) string {
	text, err := ReadAttribute(elem...)
	if err != nil {
		return ""
	}
	return text
}

// Printable returns at most 128 bytes of text without the characters that cannot be printed, and without blanks
// around it.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), maxText)], ""))
	return strings.TrimSpace(text)
}

// Target returns the last name in the target of a sysfs link, such as that of a driver, or "".
func Target(elem ...string) string {
	to, err := os.Readlink(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return Printable(filepath.Base(to))
}

// Ancestor returns the nearest folder with all these files, of the device or one of its parents, or "".
func (r Roots) Ancestor(dir string, files ...string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	root, err := filepath.EvalSymlinks(r.SysPath())
	if err != nil {
		return ""
	}
	for range maxDepth {
		if dir == root || !strings.HasPrefix(dir, root) {
			return ""
		}
		if !slices.ContainsFunc(files, func(f string) bool { _, err := os.Stat(filepath.Join(dir, f)); return err != nil }) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// Node returns the device node of that name with all permissions, which a task sees below /dev. A missing one
// is an error that wraps devices.ErrUnplugged.
func (r Roots) Node(elem ...string) (fleet.DeviceNode, error) {
	host := r.DevPath(elem...)
	if _, err := os.Stat(host); err != nil {
		return fleet.DeviceNode{}, fmt.Errorf("find device node %s: %w", host, errors.Join(devices.ErrUnplugged, err))
	}
	return fleet.DeviceNode{
		HostPath: host, TaskPath: filepath.Join(append([]string{"/dev"}, elem...)...), Permissions: "rwm",
	}, nil
}

// WithoutEmpty removes the attributes without a value, and returns the map.
func WithoutEmpty(attributes map[string]string) map[string]string {
	for k, v := range attributes {
		if v == "" {
			delete(attributes, k)
		}
	}
	return attributes
}
