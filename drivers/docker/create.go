package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
)

// Labels of a container.
const (
	labelTaskID  = "io.skerry.task_id"
	labelAlloc   = "io.skerry.alloc_id"
	labelTask    = "io.skerry.task"
	labelBoot    = "io.skerry.boot_id"
	labelFolder  = "io.skerry.state_folder" // identity of the task's state folder
	labelDataDir = "io.skerry.data_dir"     // identity of the edge's data directory
	labelConfig  = "io.skerry.config"       // hash of all that the container was created with
	labelNomad   = "com.hashicorp.nomad.alloc_id"
)

const (
	// minCPUShares and maxCPUShares are the kernel's bounds.
	minCPUShares = 2
	maxCPUShares = 262144
	// defaultCPUPeriod is the kernel's, in µs.
	defaultCPUPeriod = 100_000
)

// createOptions returns the container of a task, without its image.
func (d *Driver) createOptions(ctx context.Context, o *options, cfg drivers.TaskConfig, name, folder string) (client.ContainerCreateOptions, error) {
	config, host := o.config, o.host
	config.User = cfg.User
	config.Env = environment(cfg.Env)
	config.Cmd = o.args
	if o.command != "" {
		config.Cmd = append([]string{o.command}, o.args...)
	}
	config.Entrypoint = o.entrypoint
	if cfg.KillSignal != "" {
		config.StopSignal = signalName(cfg.KillSignal)
	}
	if config.Hostname == "" {
		config.Hostname = cfg.Network.Hostname
	}
	seconds := wholeSeconds(cfg.KillTimeout)
	config.StopTimeout = &seconds
	var err error
	if config.Labels, err = d.labelsOf(config.Labels, cfg, folder); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	host.RestartPolicy = container.RestartPolicy{Name: container.RestartPolicyDisabled}
	if !slices.Contains(slices.Concat(host.CapAdd, host.CapDrop), "NET_RAW") && !slices.Contains(host.CapAdd, "ALL") && !host.Privileged {
		host.CapDrop = append(slices.Clone(host.CapDrop), "NET_RAW") // as Nomad
	}
	if host.SecurityOpt, err = d.resolveProfiles(host.SecurityOpt, cfg); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	for _, dev := range cfg.Devices {
		host.Devices = append(host.Devices, container.DeviceMapping{
			PathOnHost: dev.HostPath, PathInContainer: dev.TaskPath, CgroupPermissions: dev.Permissions,
		})
	}
	if err := d.requestDevices(ctx, &host, cfg.CDI); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	d.setLogging(&host, o, cfg)
	host.CpusetCpus = cfg.Env["NOMAD_CPU_CORES"] // the cores reserved for the task
	if err := d.setResources(&host, o, cfg.Resources); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	if err := d.addStorage(&host, o, cfg); err != nil {
		return client.ContainerCreateOptions{}, err
	}
	networking, err := d.setNetwork(ctx, &config, &host, o, cfg)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	if len(host.Ulimits) == 0 && d.needsLowLimits() {
		host.Ulimits = lowLimits()
	}
	return client.ContainerCreateOptions{Name: name, Config: &config, HostConfig: &host, NetworkingConfig: networking}, nil
}

// requestDevices lets the daemon add devices by their names in the Container Device Interface, if it lists them all. It
// also adds the vendor's mounts for them, such as libraries. Other daemons add only the device nodes.
func (d *Driver) requestDevices(ctx context.Context, host *container.HostConfig, names []string) error {
	if len(names) == 0 || d.quirks.podman { // Podman lists no devices
		return nil
	}
	info, err := d.client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return d.daemonError("list the devices of the daemon", err)
	}
	for _, name := range names {
		if !slices.Contains(info.Info.DiscoveredDevices, system.DeviceInfo{Source: "cdi", ID: name}) {
			return nil
		}
	}
	host.DeviceRequests = append(host.DeviceRequests, container.DeviceRequest{Driver: "cdi", DeviceIDs: names})
	return nil
}

// labelsOf returns a container's labels: those of the job, and those by which the driver finds the container again.
func (d *Driver) labelsOf(job map[string]string, cfg drivers.TaskConfig, folder string) (map[string]string, error) {
	labels := maps.Clone(job)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, map[string]string{
		labelTaskID: cfg.ID, labelAlloc: string(cfg.AllocID), labelTask: cfg.Task, labelBoot: d.bootID,
		labelFolder: folder, labelNomad: string(cfg.AllocID),
	})
	if d.cfg.DataDir != "" {
		dir, err := identity(d.cfg.DataDir)
		if err != nil {
			return nil, drivers.Recoverable(err)
		}
		labels[labelDataDir] = dir
	}
	return labels, nil
}

// setLogging bounds the daemon's log of the container. A log driver that the job names stays, also if the job disables the task's logs.
func (d *Driver) setLogging(host *container.HostConfig, o *options, cfg drivers.TaskConfig) {
	switch {
	case o.logging && host.LogConfig.Type != "" && host.LogConfig.Type != "json-file" && host.LogConfig.Type != "k8s-file":
	case cfg.Logs.Disabled && !o.logging:
		host.LogConfig = container.LogConfig{Type: "none"}
	default:
		config := map[string]string{"max-size": strconv.Itoa(d.quirks.logMB) + "m"}
		if d.quirks.logFiles > 1 {
			config["max-file"] = strconv.Itoa(d.quirks.logFiles)
		}
		maps.Copy(config, host.LogConfig.Config)
		host.LogConfig = container.LogConfig{Type: "json-file", Config: config}
	}
}

// setResources sets the limits of a container. With memory_max, the task may use more memory than it reserves.
func (d *Driver) setResources(host *container.HostConfig, o *options, r fleet.Resources) error {
	if r.CPU > 0 {
		host.CPUShares = int64(min(max(r.CPU, minCPUShares), maxCPUShares))
	}
	memory := int64(r.MemoryMB)
	limit := max(memory, int64(r.MemoryMaxMB), o.memoryHardMB)
	if limit > 0 {
		host.Memory = limit << 20
		host.MemorySwap = host.Memory // none
	}
	if limit > memory {
		host.MemoryReservation = memory << 20
	}
	if o.memoryAndSwap > 0 && o.memoryAndSwap < host.Memory {
		return fleet.Errorf(fleet.CodeInvalid, "config of %s: memory_swap is %d bytes, and is less than the task's memory of %d", d.cfg.Name, o.memoryAndSwap, host.Memory).
			WithHint("memory_swap is the sum of memory and swap")
	}
	host.MemoryReservation = cmp.Or(o.memoryReserved, host.MemoryReservation)
	host.MemorySwap = cmp.Or(o.memoryAndSwap, host.MemorySwap)
	if !o.cpuHardLimit {
		return nil
	}
	total := 0
	if d.cfg.TotalMHz != nil {
		total = d.cfg.TotalMHz()
	}
	if total <= 0 || r.CPU <= 0 {
		return fleet.Errorf(fleet.CodeInvalid, "config of %s: cpu_hard_limit: the task asks for no cpu, or the processor's clock rate is not known", d.cfg.Name).
			WithHint("start the edge with --total-cpu")
	}
	host.CPUPeriod = o.cpuPeriod
	if host.CPUPeriod == 0 {
		host.CPUPeriod = defaultCPUPeriod
	}
	host.CPUQuota = max(int64(float64(r.CPU)/float64(total)*float64(host.CPUPeriod)*float64(processors())), 1000)
	return nil
}

// setNetwork sets the container's network and published ports.
func (d *Driver) setNetwork(ctx context.Context, config *container.Config, host *container.HostConfig, o *options, cfg drivers.TaskConfig) (*network.NetworkingConfig, error) {
	if cfg.Network.DNS != nil {
		if err := addDNS(host, cfg.Network.DNS); err != nil {
			return nil, err
		}
	}
	for _, entry := range cfg.Network.Hosts {
		ip, name, _ := strings.Cut(entry, " ")
		host.ExtraHosts = append(host.ExtraHosts, name+":"+ip)
	}
	joinsGroup := false
	if host.NetworkMode == "" {
		mode, err := d.groupNetwork(ctx, cfg)
		if err != nil {
			return nil, err
		}
		host.NetworkMode = mode
		joinsGroup = mode.IsContainer() || strings.HasPrefix(string(mode), namespaceMode)
	}
	if joinsGroup {
		if err := mountNames(host, cfg); err != nil {
			return nil, err
		}
	}
	if task, ok := strings.CutPrefix(string(host.NetworkMode), taskMode); ok {
		id, err := d.containerOfTask(ctx, cfg.AllocID, task)
		if err != nil {
			return nil, err
		}
		host.NetworkMode = container.NetworkMode("container:" + id)
	}
	for _, what := range o.idleInGroup(d.cfg.Name, host.NetworkMode, joinsGroup, cfg) {
		d.log.Warn("a key of a container has no effect", "task_id", cfg.ID, "reason", what)
	}
	if joinsGroup || host.NetworkMode.IsContainer() { // the container shares names and addresses with the other one
		if host.NetworkMode.IsContainer() && !d.quirks.podman { // Docker also gives it the other one's host name
			config.Hostname = ""
		}
		host.DNS, host.DNSSearch, host.DNSOptions, host.ExtraHosts = nil, nil, nil, nil
	}
	if !joinsGroup && !host.NetworkMode.IsHost() && !host.NetworkMode.IsContainer() && !host.NetworkMode.IsNone() {
		if err := publishPorts(config, host, o, cfg); err != nil {
			return nil, err
		}
	} else if len(o.ports)+len(o.portMap) > 0 {
		if err := checkLabels(o, cfg); err != nil {
			return nil, err
		}
	}
	if joinsGroup || !host.NetworkMode.IsUserDefined() {
		return nil, nil
	}
	endpoint := o.endpoint
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{string(host.NetworkMode): &endpoint}}, nil
}

// mountNames gives a container in the network namespace of its allocation the resolvers and host names of the group and of the task. The
// daemon would give it those of the container that holds the namespace, which knows neither.
func mountNames(host *container.HostConfig, cfg drivers.TaskConfig) error {
	n := cfg.Network
	n.Hosts = nil
	for _, entry := range host.ExtraHosts {
		name, ip, _ := strings.Cut(entry, ":")
		if _, err := netip.ParseAddr(ip); err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "extra_hosts: %q has no IP address", entry).
				WithHint("in a group with a network of mode %s, write NAME:IP", n.Mode)
		}
		n.Hosts = append(n.Hosts, ip+" "+name)
	}
	if len(host.DNS)+len(host.DNSSearch)+len(host.DNSOptions) > 0 {
		n.DNS = &fleet.DNSConfig{Searches: host.DNSSearch, Options: host.DNSOptions}
		for _, server := range host.DNS {
			n.DNS.Servers = append(n.DNS.Servers, server.String())
		}
	}
	for _, file := range []struct{ name, content string }{{resolvFile, n.ResolvConf()}, {hostsFile, n.HostsFile()}} {
		target := "/etc/" + file.name
		if mountsTarget(host, target) { // the job has a file of its own
			continue
		}
		source := filepath.Join(cfg.StateDir, file.name)
		if err := os.WriteFile(source, []byte(file.content), 0o644); err != nil {
			return drivers.Recoverable(fmt.Errorf("write names of the network: %w", err))
		}
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: source, Target: target})
	}
	return nil
}

// mountsTarget reports whether a mount of the job is at a path of the container.
func mountsTarget(host *container.HostConfig, target string) bool {
	return slices.ContainsFunc(host.Mounts, func(m mount.Mount) bool { return path.Clean(m.Target) == target }) ||
		slices.ContainsFunc(host.Binds, func(bind string) bool { return slices.Contains(strings.Split(bind, ":")[1:], target) })
}

// addDNS adds the resolvers of the group's network to those of the task's config block.
func addDNS(host *container.HostConfig, dns *fleet.DNSConfig) error {
	for _, s := range dns.Servers {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "dns server %q: %w", s, err)
		}
		host.DNS = append(host.DNS, ip)
	}
	host.DNSSearch = append(slices.Clone(host.DNSSearch), dns.Searches...)
	host.DNSOptions = append(slices.Clone(host.DNSOptions), dns.Options...)
	return nil
}

// publishPorts publishes the task's own ports and those that it names by their labels, for TCP and UDP as Nomad does.
func publishPorts(config *container.Config, host *container.HostConfig, o *options, cfg drivers.TaskConfig) error {
	if err := checkLabels(o, cfg); err != nil {
		return err
	}
	config.ExposedPorts, host.PortBindings = network.PortSet{}, network.PortMap{}
	for _, p := range cfg.Network.Ports {
		inside, used := o.targetPort(p, cfg)
		if !used {
			continue
		}
		for _, protocol := range []network.IPProtocol{network.TCP, network.UDP} {
			at, ok := network.PortFrom(uint16(inside), protocol)
			if !ok {
				return fleet.Errorf(fleet.CodeInvalid, "port %q: %d is not a port", p.Label, inside)
			}
			binding := network.PortBinding{HostPort: strconv.Itoa(p.Value)}
			if ip, err := netip.ParseAddr(p.HostIP); err == nil && !ip.IsUnspecified() {
				binding.HostIP = ip
			}
			config.ExposedPorts[at] = struct{}{}
			host.PortBindings[at] = append(host.PortBindings[at], binding)
		}
	}
	return nil
}

// checkLabels returns an error if a task names a port that its group lacks.
func checkLabels(o *options, cfg drivers.TaskConfig) error {
	for _, label := range append(slices.Clone(o.ports), sortedKeys(o.portMap)...) {
		if !slices.ContainsFunc(cfg.Network.Ports, func(p fleet.AssignedPort) bool { return p.Label == label }) {
			return fleet.Errorf(fleet.CodeInvalid, "ports: the group has no port %q", label).
				WithHint("add it to the group's network block: port %q {}", label)
		}
	}
	return nil
}

// environment returns variables as NAME=value, in order.
func environment(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, k := range sortedKeys(env) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// signalName returns a signal's name as the daemon takes it.
func signalName(name string) string {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return name
}

// wholeSeconds rounds a timeout up to the daemon's unit.
func wholeSeconds(d time.Duration) int {
	return int((max(d, 0) + time.Second - 1) / time.Second)
}

// containerName returns the name of a task's container: TASK-ALLOC-HASH. The hash covers the task's id and the
// folder's identity, so it differs for each attempt and for each copy of a data directory.
func containerName(cfg drivers.TaskConfig, folder string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c) {
			return c
		}
		return '_'
	}, fmt.Sprintf("%s-%s", cfg.Task, cfg.AllocID))
	return strings.TrimLeft(name, "_.-") + "-" + shortHash(cfg.ID+"\x00"+folder)
}
