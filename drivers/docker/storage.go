package docker

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"skerry/drivers"
	"skerry/fleet"
)

// storageKeys are the keys about mounts.
func (o *options) storageKeys(r *reader) map[string]func(string, any) {
	one := func(k string, v any) {
		for _, b := range r.readBlocks(k, v) {
			o.mounts = append(o.mounts, readMount(r, k+".", b))
		}
	}
	return map[string]func(string, any){
		"volumes": func(k string, v any) {
			o.volumes = r.readList(k, v)
			for _, s := range o.volumes {
				if n := strings.Count(s, ":"); !r.isOpen(s) && (n < 1 || n > 2 || strings.HasPrefix(s, ":")) {
					r.wrong = append(r.wrong, k+": "+strconv.Quote(s)+" must be SOURCE:TARGET or SOURCE:TARGET:OPTIONS")
				}
			}
		},
		"volume_driver": func(k string, v any) { o.host.VolumeDriver = r.readText(k, v) },
		"mount":         one,
		"mounts":        one,
	}
}

// readMount reads a block mount.
func readMount(r *reader, path string, block map[string]any) mount.Mount {
	m := mount.Mount{Type: mount.TypeVolume}
	readonly := func(k string, v any) { m.ReadOnly = r.readFlag(k, v) }
	r.readKeys(path, block, map[string]func(string, any){
		"type":     func(k string, v any) { m.Type = mount.Type(r.oneOf(k, v, "bind", "volume", "tmpfs")) },
		"source":   func(k string, v any) { m.Source = r.readText(k, v) },
		"target":   func(k string, v any) { m.Target = r.readText(k, v) },
		"readonly": readonly, "read_only": readonly,
		"bind_options": func(k string, v any) {
			m.BindOptions = &mount.BindOptions{}
			r.readKeys(k+".", r.readBlock(k, v), map[string]func(string, any){
				"propagation": func(k string, v any) { m.BindOptions.Propagation = mount.Propagation(r.readText(k, v)) },
			})
		},
		"tmpfs_options": func(k string, v any) {
			m.TmpfsOptions = &mount.TmpfsOptions{}
			r.readKeys(k+".", r.readBlock(k, v), map[string]func(string, any){
				"size": func(k string, v any) { m.TmpfsOptions.SizeBytes = r.readInteger(k, v, 0, 1<<50) },
				"mode": func(k string, v any) { m.TmpfsOptions.Mode = os.FileMode(r.readInteger(k, v, 0, 0o7777)) },
			})
		},
		"volume_options": func(k string, v any) {
			m.VolumeOptions = &mount.VolumeOptions{}
			r.readKeys(k+".", r.readBlock(k, v), volumeOptionKeys(r, m.VolumeOptions))
		},
	})
	if m.Target == "" {
		r.wrong = append(r.wrong, path+"target is required")
	}
	if m.Type == mount.TypeBind && m.Source == "" {
		r.wrong = append(r.wrong, path+"source is required")
	}
	return m
}

// volumeOptionKeys are the keys of a block volume_options.
func volumeOptionKeys(r *reader, o *mount.VolumeOptions) map[string]func(string, any) {
	return map[string]func(string, any){
		"no_copy": func(k string, v any) { o.NoCopy = r.readFlag(k, v) },
		"labels":  func(k string, v any) { o.Labels = r.readTexts(k, v) },
		"driver_config": func(k string, v any) {
			o.DriverConfig = &mount.Driver{}
			r.readKeys(k+".", r.readBlock(k, v), map[string]func(string, any){
				"name":    func(k string, v any) { o.DriverConfig.Name = r.readText(k, v) },
				"options": func(k string, v any) { o.DriverConfig.Options = r.readTexts(k, v) },
			})
		},
	}
}

// addStorage sets the mounts of a task: its folders, the volumes of its group, and those of its config block.
// Paths outside of the allocation need Config.AllowVolumes.
func (d *Driver) addStorage(host *container.HostConfig, o *options, cfg drivers.TaskConfig) error {
	for _, m := range []mount.Mount{
		{Source: cfg.AllocDir, Target: drivers.AllocPath}, {Source: cfg.LocalDir, Target: drivers.LocalPath}, {Source: cfg.SecretsDir, Target: drivers.SecretsPath},
	} {
		if m.Source != "" {
			m.Type = mount.TypeBind
			host.Mounts = append(host.Mounts, m)
		}
	}
	for _, m := range cfg.Mounts {
		one := mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
		if p := propagationOf(m.Propagation); p != "" {
			one.BindOptions = &mount.BindOptions{Propagation: p}
		}
		host.Mounts = append(host.Mounts, one)
	}
	for _, m := range o.mounts {
		if m.Type == mount.TypeBind {
			source, inside := resolveInTask(cfg, m.Source)
			if !inside && !d.cfg.AllowVolumes {
				return d.volumesRefused(m.Source)
			}
			m.Source = source
		}
		if !path.IsAbs(m.Target) {
			m.Target = path.Join("/", m.Target)
		}
		host.Mounts = append(host.Mounts, m)
	}
	for _, v := range o.volumes {
		bind, err := d.bindOf(cfg, o, v)
		if err != nil {
			return err
		}
		host.Binds = append(host.Binds, bind)
	}
	return nil
}

// bindOf returns one element of volumes in the daemon's form. A relative path lies in the task's folder. So does a
// plain name, such as data:/srv, unless a volume driver is named.
func (d *Driver) bindOf(cfg drivers.TaskConfig, o *options, volume string) (string, error) {
	source, rest, _ := strings.Cut(volume, ":")
	if o.host.VolumeDriver != "" && !strings.HasPrefix(source, ".") && !path.IsAbs(source) {
		if !d.cfg.AllowVolumes {
			return "", d.volumesRefused(source)
		}
		return volume, nil
	}
	full, inside := resolveInTask(cfg, source)
	if !inside && !d.cfg.AllowVolumes {
		return "", d.volumesRefused(source)
	}
	target, mode, hasMode := strings.Cut(rest, ":")
	if !path.IsAbs(target) {
		target = path.Join("/", target)
	}
	if hasMode {
		target += ":" + mode
	}
	return full + ":" + target, nil
}

// volumesRefused returns the error for a path outside of the allocation.
func (d *Driver) volumesRefused(source string) error {
	return fleet.Errorf(fleet.CodeInvalid, "mount %q: this edge lets containers mount files of their allocation only", source).
		WithHint("start the edge with --docker-volumes, use a host volume, or write a path below local/")
}

// resolveInTask returns the path on the host of a source that a job names, and whether it lies in the
// allocation's folders: relative paths are those of the task's folder, /alloc, /local and /secrets as the task
// sees them.
func resolveInTask(cfg drivers.TaskConfig, source string) (string, bool) {
	full := filepath.Clean(source)
	folders := map[string]string{"alloc": cfg.AllocDir, "local": cfg.LocalDir, "secrets": cfg.SecretsDir}
	name, rest, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	switch dir := folders[name]; {
	case dir != "":
		full = filepath.Join(dir, rest)
	case !filepath.IsAbs(full):
		full = filepath.Join(cfg.Dir, full)
	}
	full = followLinks(full)
	return full, slices.ContainsFunc([]string{cfg.Dir, cfg.AllocDir, cfg.LocalDir, cfg.SecretsDir}, func(dir string) bool {
		return dir != "" && isBelow(full, dir)
	})
}

// isBelow reports whether a path is a folder or lies below it.
func isBelow(full, dir string) bool {
	rel, err := filepath.Rel(followLinks(dir), full)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// followLinks resolves the symbolic links in the existing part of a path: a task may make links in its folder, and a
// mount must not leave the folder through them.
func followLinks(full string) string {
	for rest := ""; ; {
		if real, err := filepath.EvalSymlinks(full); err == nil {
			return filepath.Join(real, rest)
		}
		parent := filepath.Dir(full)
		if parent == full {
			return filepath.Join(full, rest)
		}
		full, rest = parent, filepath.Join(filepath.Base(full), rest)
	}
}

// propagationOf translates the propagation mode of a volume_mount.
func propagationOf(mode string) mount.Propagation {
	switch mode {
	case "host-to-task":
		return mount.PropagationRSlave
	case "bidirectional":
		return mount.PropagationRShared
	}
	return "" // private is the daemon's default
}
