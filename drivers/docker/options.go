package docker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/registry"

	"skerry/fleet"
)

const (
	// defaultPullTimeout bounds the pull of an image, as in Nomad.
	defaultPullTimeout = 5 * time.Minute
	// maxConfigMB bounds sizes in a config block.
	maxConfigMB = 1 << 30
)

// options are the values of a task's config block. config, host and endpoint hold values in the daemon's form.
type options struct {
	config   container.Config
	host     container.HostConfig
	endpoint network.EndpointSettings

	image        string
	command      string
	args         []string
	entrypoint   []string
	load         string // tar file in the task's folder
	forcePull    bool
	pullTimeout  time.Duration
	auth         *registry.AuthConfig
	authSoftFail bool
	ports        []string       // labels of published ports
	portMap      map[string]int // container ports by label, of old job files
	// memoryReserved and memoryAndSwap are Podman's limits in bytes; 0: those of the task's resources.
	memoryReserved, memoryAndSwap int64
	volumes                       []string // SOURCE:TARGET[:OPTIONS]
	mounts                        []mount.Mount
	cpuHardLimit                  bool
	cpuPeriod                     int64 // µs; 0: the daemon's
	memoryHardMB                  int64
	logging                       bool // the job names the log driver
}

// parseOptions parses a task's config block for the driver with that name. The error names all invalid keys. early
// says that ${…} is not replaced yet.
func parseOptions(driver string, config map[string]any, early bool) (options, error) {
	o := options{pullTimeout: defaultPullTimeout}
	r := &reader{early: early}
	known := o.configKeys(r)
	if driver == Podman {
		for k, read := range o.podmanKeys(r) {
			known[k] = read
		}
	}
	r.readKeys("", config, known)
	o.checkNetworkKeys(driver, r)
	if o.image == "" && o.load == "" && len(r.wrong) == 0 {
		r.wrong = append(r.wrong, "image is required")
	}
	if o.image != "" && !r.isOpen(o.image) {
		if _, err := reference.ParseNormalizedNamed(trimTransport(o.image)); err != nil {
			r.wrong = append(r.wrong, fmt.Sprintf("image %q: %v", o.image, err))
		}
	}
	if len(r.wrong) > 0 {
		return options{}, fleet.Errorf(fleet.CodeInvalid, "config of %s: %s", driver, strings.Join(r.wrong, "; ")).
			WithHint("docs/drivers.md lists the keys")
	}
	return o, nil
}

// trimTransport removes the prefix "docker://", which podman jobs may have.
func trimTransport(image string) string {
	return strings.TrimPrefix(strings.TrimPrefix(image, "docker://"), "https://")
}

// configKeys returns, for each key of a config block, the function that reads its value.
func (o *options) configKeys(r *reader) map[string]func(string, any) {
	all := map[string]func(string, any){}
	for _, some := range []map[string]func(string, any){
		o.imageKeys(r), o.processKeys(r), o.networkKeys(r), o.isolationKeys(r), o.resourceKeys(r), o.storageKeys(r),
	} {
		for k, read := range some {
			all[k] = read
		}
	}
	return all
}

// imageKeys are the keys about the image and its source.
func (o *options) imageKeys(r *reader) map[string]func(string, any) {
	return map[string]func(string, any){
		"image":          func(k string, v any) { o.image = r.readText(k, v) },
		"load":           func(k string, v any) { o.load = r.readText(k, v) },
		"force_pull":     func(k string, v any) { o.forcePull = r.readFlag(k, v) },
		"auth_soft_fail": func(k string, v any) { o.authSoftFail = r.readFlag(k, v) },
		"image_pull_timeout": func(k string, v any) {
			d, err := time.ParseDuration(r.readText(k, v))
			if !r.isOpen(v) && (err != nil || d <= 0) {
				r.rejectValue(k, "a duration like 5m", v)
			}
			o.pullTimeout = d
		},
		"auth": func(k string, v any) {
			o.auth = &registry.AuthConfig{}
			text := func(to *string) func(string, any) { return func(k string, v any) { *to = r.readText(k, v) } }
			r.readKeys(k+".", r.readBlock(k, v), map[string]func(string, any){
				"username": text(&o.auth.Username), "password": text(&o.auth.Password),
				"server_address": text(&o.auth.ServerAddress), "email": func(string, any) {},
			})
		},
	}
}

// processKeys are the keys about the process in the container.
func (o *options) processKeys(r *reader) map[string]func(string, any) {
	return map[string]func(string, any){
		"command": func(k string, v any) { o.command = r.readText(k, v) },
		"args":    func(k string, v any) { o.args = r.readList(k, v) },
		"entrypoint": func(k string, v any) {
			if s, ok := v.(string); ok {
				v = []any{s}
			}
			o.entrypoint = r.readList(k, v)
		},
		"work_dir":    func(k string, v any) { o.config.WorkingDir = r.readText(k, v) },
		"tty":         func(k string, v any) { o.config.Tty = r.readFlag(k, v) },
		"interactive": func(k string, v any) { o.config.OpenStdin = r.readFlag(k, v) },
		"labels":      func(k string, v any) { o.config.Labels = r.readTexts(k, v) },
		"init": func(k string, v any) {
			b := r.readFlag(k, v)
			o.host.Init = &b
		},
		"healthchecks": func(k string, v any) {
			r.readKeys(k+".", r.readBlock(k, v), map[string]func(string, any){"disable": func(k string, v any) {
				if r.readFlag(k, v) {
					o.config.Healthcheck = &container.HealthConfig{Test: []string{"NONE"}}
				}
			}})
		},
		"logging": func(k string, v any) {
			o.logging = true
			driver := func(k string, v any) { o.host.LogConfig.Type = r.readText(k, v) }
			config := func(k string, v any) { o.host.LogConfig.Config = r.readTexts(k, v) }
			r.readKeys(k+".", r.readBlock(k, v), map[string]func(string, any){
				"type": driver, "driver": driver, "config": config, "options": config,
			})
		},
	}
}

// networkKeys are the keys about the container's network.
func (o *options) networkKeys(r *reader) map[string]func(string, any) {
	address := func(k string, v any) netip.Addr {
		a, err := netip.ParseAddr(r.readText(k, v))
		if err != nil && !r.isOpen(v) {
			r.rejectValue(k, "an IP address", v)
		}
		return a
	}
	ipam := func() *network.EndpointIPAMConfig {
		if o.endpoint.IPAMConfig == nil {
			o.endpoint.IPAMConfig = &network.EndpointIPAMConfig{}
		}
		return o.endpoint.IPAMConfig
	}
	return map[string]func(string, any){
		"network_mode":    func(k string, v any) { o.host.NetworkMode = container.NetworkMode(r.readText(k, v)) },
		"network_aliases": func(k string, v any) { o.endpoint.Aliases = r.readList(k, v) },
		"ipv4_address":    func(k string, v any) { ipam().IPv4Address = address(k, v) },
		"ipv6_address":    func(k string, v any) { ipam().IPv6Address = address(k, v) },
		"hostname":        func(k string, v any) { o.config.Hostname = r.readText(k, v) },
		"ports":           func(k string, v any) { o.ports = r.readList(k, v) },
		"port_map": func(k string, v any) {
			o.portMap = map[string]int{}
			for label, port := range r.readTexts(k, v) {
				o.portMap[label] = int(r.readInteger(k+"."+label, port, 1, fleet.MaxPort))
			}
		},
		"dns_servers": func(k string, v any) {
			for i, s := range r.readList(k, v) {
				o.host.DNS = append(o.host.DNS, address(fmt.Sprintf("%s[%d]", k, i), s))
			}
		},
		"dns_search_domains": func(k string, v any) { o.host.DNSSearch = r.readList(k, v) },
		"dns_options":        func(k string, v any) { o.host.DNSOptions = r.readList(k, v) },
		"extra_hosts": func(k string, v any) {
			o.host.ExtraHosts = r.readList(k, v)
			for _, h := range o.host.ExtraHosts {
				if name, ip, ok := strings.Cut(h, ":"); !r.isOpen(h) && (!ok || name == "" || ip == "") {
					r.wrong = append(r.wrong, fmt.Sprintf("%s: %q must be NAME:IP", k, h))
				}
			}
		},
	}
}

// isolationKeys are the keys about rights and isolation.
func (o *options) isolationKeys(r *reader) map[string]func(string, any) {
	return map[string]func(string, any){
		"privileged":      func(k string, v any) { o.host.Privileged = r.readFlag(k, v) },
		"cap_add":         func(k string, v any) { o.host.CapAdd = capabilityNames(r.readList(k, v)) },
		"cap_drop":        func(k string, v any) { o.host.CapDrop = capabilityNames(r.readList(k, v)) },
		"security_opt":    func(k string, v any) { o.host.SecurityOpt = append(o.host.SecurityOpt, r.readList(k, v)...) },
		"group_add":       func(k string, v any) { o.host.GroupAdd = r.readList(k, v) },
		"readonly_rootfs": func(k string, v any) { o.host.ReadonlyRootfs = r.readFlag(k, v) },
		"runtime":         func(k string, v any) { o.host.Runtime = r.readText(k, v) },
		"ipc_mode":        func(k string, v any) { o.host.IpcMode = container.IpcMode(r.readText(k, v)) },
		"pid_mode":        func(k string, v any) { o.host.PidMode = container.PidMode(r.oneOf(k, v, "", "host")) },
		"uts_mode":        func(k string, v any) { o.host.UTSMode = container.UTSMode(r.oneOf(k, v, "", "host")) },
		"userns_mode":     func(k string, v any) { o.host.UsernsMode = container.UsernsMode(r.readText(k, v)) },
		"cgroupns": func(k string, v any) {
			o.host.CgroupnsMode = container.CgroupnsMode(r.oneOf(k, v, "", "host", "private"))
		},
		"sysctl":      func(k string, v any) { o.host.Sysctls = r.readTexts(k, v) },
		"storage_opt": func(k string, v any) { o.host.StorageOpt = r.readTexts(k, v) },
	}
}

// resourceKeys are the keys about limits.
func (o *options) resourceKeys(r *reader) map[string]func(string, any) {
	return map[string]func(string, any){
		"shm_size":          func(k string, v any) { o.host.ShmSize = r.readInteger(k, v, 0, 1<<50) },
		"cpu_hard_limit":    func(k string, v any) { o.cpuHardLimit = r.readFlag(k, v) },
		"cpu_cfs_period":    func(k string, v any) { o.cpuPeriod = r.readInteger(k, v, 1000, 1_000_000) },
		"memory_hard_limit": func(k string, v any) { o.memoryHardMB = r.readInteger(k, v, 0, maxConfigMB) },
		"oom_score_adj":     func(k string, v any) { o.host.OomScoreAdj = int(r.readInteger(k, v, 0, 1000)) },
		"pids_limit": func(k string, v any) {
			n := r.readInteger(k, v, 0, 1<<22)
			o.host.PidsLimit = &n
		},
		"ulimit": func(k string, v any) {
			limits := r.readTexts(k, v)
			for _, name := range sortedKeys(limits) {
				soft, hard, both := strings.Cut(limits[name], ":")
				if !both {
					hard = soft
				}
				o.host.Ulimits = append(o.host.Ulimits, &container.Ulimit{
					Name: name,
					Soft: r.readInteger(k+"."+name, soft, -1, 1<<62), Hard: r.readInteger(k+"."+name, hard, -1, 1<<62),
				})
			}
		},
		"devices": func(k string, v any) {
			for _, b := range r.readBlocks(k, v) {
				d := container.DeviceMapping{CgroupPermissions: "rwm"}
				r.readKeys(k+".", b, map[string]func(string, any){
					"host_path":      func(k string, v any) { d.PathOnHost = r.readText(k, v) },
					"container_path": func(k string, v any) { d.PathInContainer = r.readText(k, v) },
					"cgroup_permissions": func(k string, v any) {
						d.CgroupPermissions = r.readText(k, v)
						if strings.Trim(d.CgroupPermissions, "rwm") != "" {
							r.rejectValue(k, "some of r, w and m", v)
						}
					},
				})
				o.addDevice(r, k, d)
			}
		},
	}
}

// addDevice adds a device of the host. Without container_path, it keeps its host path in the container.
func (o *options) addDevice(r *reader, key string, d container.DeviceMapping) {
	if d.PathOnHost == "" {
		r.wrong = append(r.wrong, key+": host_path is required")
	}
	if d.PathInContainer == "" {
		d.PathInContainer = d.PathOnHost
	}
	o.host.Devices = append(o.host.Devices, d)
}

// capabilityNames returns capabilities in the daemon's spelling, such as NET_ADMIN.
func capabilityNames(names []string) []string {
	for i, n := range names {
		names[i] = strings.TrimPrefix(strings.ToUpper(n), "CAP_")
	}
	slices.Sort(names)
	return slices.Compact(names)
}
