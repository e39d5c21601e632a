// Package network gives allocations networks of their own: a network namespace for each allocation whose group
// has the mode bridge, none or cni/NAME, joined to a network by CNI plugins. Its Hook of edge/runner and its
// node attributes are put together in cmd/edged.
//
// It starts no goroutine. A folder of this boot below Config.RunDir has, for each allocation, a file on which
// the namespace is mounted, and a State, which is written before each step: after a crash the agent reads
// there which steps it must undo. The folder also has the leases of addresses, which all edges of a machine
// share. After a reboot all of this is stale: a new boot has a new folder, and old ones are removed.
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/internal/programs"
)

// Defaults of a Config.
const (
	DefaultRunDir     = "/run/skerry"
	DefaultPluginPath = "/opt/cni/bin:/usr/lib/cni"
	DefaultConfigDir  = "/opt/cni/config"
	DefaultBridge     = "skerry"
	DefaultSubnet     = "172.26.64.0/20"
)

// Config is the configuration of a Hook. Drivers, Dir and Log are required.
type Config struct {
	Drivers map[string]drivers.Driver // by name
	// Dir is the data directory of the edge. It tells the edges of one machine apart.
	Dir    string
	BootID fleet.BootID // a namespace of another boot is never used; "": the kernel's
	RunDir string       // "": DefaultRunDir
	// PluginPath lists the folders of CNI plugins, with colons; "": DefaultPluginPath.
	PluginPath string
	ConfigDir  string // holds the networks cni/NAME; "": DefaultConfigDir
	Bridge     string // network interface of mode bridge; "": DefaultBridge
	Subnet     string // addresses of mode bridge; "": DefaultSubnet
	// Programs keeps the versions of plugins; nil: in memory.
	Programs *programs.Answers
	Log      *slog.Logger
}

// Hook makes the networks of allocations. It implements runner.Hook.
type Hook struct {
	cfg    Config
	bootID string // the kernel's, which names the folder of this boot

	mu        sync.Mutex
	locks     map[fleet.AllocID]*allocLock
	whyNoneOf map[string]string // last logged reason why a mode does not work, by mode
}

// allocLock is held while the network of one allocation changes. users counts the goroutines that hold it or wait.
type allocLock struct {
	sync.Mutex
	users int
}

// New makes the hook. It does no I/O, apart from reading the kernel's boot id.
func New(cfg Config) (*Hook, error) {
	if cfg.Dir == "" || cfg.Log == nil {
		return nil, errors.New("make the hook of networks: a data directory and a logger are required")
	}
	cfg.RunDir, cfg.PluginPath = cmp.Or(cfg.RunDir, DefaultRunDir), cmp.Or(cfg.PluginPath, DefaultPluginPath)
	cfg.ConfigDir, cfg.Bridge, cfg.Subnet = cmp.Or(cfg.ConfigDir, DefaultConfigDir), cmp.Or(cfg.Bridge, DefaultBridge), cmp.Or(cfg.Subnet, DefaultSubnet)
	if _, subnet, err := net.ParseCIDR(cfg.Subnet); err != nil || subnet.IP.To4() == nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "subnet of bridge networks %q: it is no IPv4 network", cfg.Subnet).WithHint("write it as %s", DefaultSubnet)
	}
	if !fleet.IsName(cfg.Bridge, 15, "-") {
		return nil, fleet.Errorf(fleet.CodeInvalid, "bridge %q: it is no name of a network interface", cfg.Bridge).WithHint("use 1 to 15 letters, digits and dashes")
	}
	bootID := "boot"
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		bootID = strings.TrimSpace(string(b))
	}
	cfg.BootID = cmp.Or(cfg.BootID, fleet.BootID(bootID))
	cfg.Programs = cmp.Or(cfg.Programs, programs.Open(""))
	return &Hook{cfg: cfg, bootID: bootID, locks: map[fleet.AllocID]*allocLock{}, whyNoneOf: map[string]string{}}, nil
}

// Name returns "network".
func (h *Hook) Name() string { return "network" }

// Prepare makes the allocation's network, unless this boot has made it already, and gives it to the task.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	g := p.Alloc.Group()
	asked := fleet.NetworkResource{}
	if len(g.Networks) > 0 {
		asked = g.Networks[0]
	}
	n := drivers.Network{Mode: g.NetworkMode(), Hostname: p.Replace(asked.Hostname), DNS: replaceDNS(asked.DNS, p.Replace)}
	if p.Alloc.Allotment != nil {
		n.Ports = slices.Clone(p.Alloc.Allotment.Ports)
	}
	for _, port := range p.Task.Ports() {
		n.TaskPorts = append(n.TaskPorts, port.Label)
	}
	if err := h.checkDriver(p.Task, n); err != nil {
		return err
	}
	if n.Mode == fleet.NetworkHost {
		p.Config.Network = n
		return nil
	}
	n.Hostname = cmp.Or(n.Hostname, fleet.Short(p.Alloc.ID))
	s, err := h.findOrCreate(ctx, p, n, asked.CNI)
	if err != nil {
		return drivers.Recoverable(err)
	}
	n.Namespace, n.IP = s.Namespace, s.IP
	if s.IP != "" {
		n.Hosts = append(n.Hosts, s.IP+" "+n.Hostname)
	}
	if n.DNS == nil && len(s.DNS.Servers) > 0 {
		n.DNS = &s.DNS
	}
	if s.IP != "" && p.Network != nil {
		if err := p.Network(fleet.NetworkStatus{InterfaceName: interfaceName, Address: s.IP}); err != nil {
			return err
		}
	}
	p.Config.Network = n
	p.Config.Env = withAllocAddresses(p.Config.Env, n.Ports, s)
	return nil
}

// Release removes the allocation's network.
func (h *Hook) Release(ctx context.Context, a fleet.Alloc) error { return h.removeNetwork(ctx, a.ID) }

// RemoveOrphans removes the networks of ended allocations, which an agent left when it died, and the folders of
// earlier boots.
func (h *Hook) RemoveOrphans(ctx context.Context, hasEnded func(fleet.AllocID) bool) error {
	var errs []error
	boots, err := os.ReadDir(h.cfg.RunDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, b := range boots {
		if strings.HasPrefix(b.Name(), bootPrefix) && b.Name() != bootPrefix+h.bootID {
			errs = append(errs, os.RemoveAll(filepath.Join(h.cfg.RunDir, b.Name())))
		}
	}
	files, err := filepath.Glob(filepath.Join(h.bootDir(), "*"+stateSuffix))
	errs = append(errs, err)
	for _, file := range files {
		id := fleet.AllocID(strings.TrimSuffix(filepath.Base(file), stateSuffix))
		if hasEnded(id) {
			errs = append(errs, h.removeNetwork(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// checkDriver refuses a network that the task's driver does not support.
func (h *Hook) checkDriver(t *fleet.Task, n drivers.Network) error {
	d, ok := h.cfg.Drivers[t.Driver]
	if !ok {
		return nil // the start will fail with a better error
	}
	can, need := d.Capabilities(), n.Mode
	if strings.HasPrefix(need, cniPrefix) {
		need = drivers.NetworkCNI
	}
	if !slices.Contains(can.Networks, need) {
		return fleet.Errorf(fleet.CodeUnsupported, "the task driver %q cannot run in a network of mode %q", t.Driver, n.Mode).
			WithHint("it can run in: %s", strings.Join(can.Networks, ", "))
	}
	if !can.Names && (n.DNS != nil || n.Hostname != "") {
		return fleet.Errorf(fleet.CodeUnsupported, "the task driver %q can set neither dns nor a hostname", t.Driver).
			WithHint("leave them out of the network block, or use a driver that runs containers")
	}
	return nil
}

// findOrCreate returns the allocation's network of this boot, and makes it if there is none.
func (h *Hook) findOrCreate(ctx context.Context, p *runner.Preparation, n drivers.Network, conf *fleet.CNIConfig) (State, error) {
	id := p.Alloc.ID
	if !fleet.IsName(string(id), 64, "-") {
		return State{}, fleet.Errorf(fleet.CodeInvalid, "make the network of allocation %q: its id cannot name a file", id)
	}
	unlock := h.lockAlloc(id)
	defer unlock()
	s, known, err := h.readState(id)
	if err != nil {
		return s, err
	}
	if known && s.Ready && s.Boot == h.cfg.BootID && s.Mode == n.Mode && isNamespace(s.Namespace) {
		return s, nil
	}
	if known {
		s.Ready = false // the next container has a new name, so remains of this one cannot block it
		if err := h.destroyNetwork(ctx, id, s); err != nil {
			return s, err
		}
	}
	s = State{Version: stateVersion, Boot: h.cfg.BootID, Mode: n.Mode, Container: string(id) + "-" + fleet.Short(fleet.NewUUID(nil))}
	if n.Mode != fleet.NetworkNone { // a driver that makes namespaces provides mode none itself
		s.Creator = h.creatorOf(p.Alloc.Group())
	}
	if err := h.planPlugins(&s, p, n, conf); err != nil {
		return s, err
	}
	if err := h.createNetwork(ctx, id, &s, n.Hostname); err != nil {
		return s, errors.Join(err, h.destroyNetwork(context.WithoutCancel(ctx), id, s))
	}
	return s, nil
}

// createNetwork makes the namespace and joins it to its network. It writes the state to the disk before each step.
func (h *Hook) createNetwork(ctx context.Context, id fleet.AllocID, s *State, hostname string) error {
	if s.Creator == "" {
		s.Namespace = filepath.Join(h.bootDir(), string(id)+namespaceSuffix)
	}
	if err := h.writeState(id, *s); err != nil {
		return err
	}
	if s.Creator == "" {
		if err := createNamespace(s.Namespace); err != nil {
			return err
		}
	} else {
		maker, _ := h.cfg.Drivers[s.Creator].(drivers.NetworkCreator)
		path, err := maker.CreateNetwork(ctx, id, hostname)
		if err != nil {
			return fmt.Errorf("make the network by the task driver %s: %w", s.Creator, err)
		}
		s.Namespace = path
		if err := h.writeState(id, *s); err != nil {
			return err
		}
	}
	if err := h.addToNetwork(ctx, s); err != nil {
		return err
	}
	s.Ready = true
	return h.writeState(id, *s)
}

// removeNetwork destroys the network of an allocation, if there is one.
func (h *Hook) removeNetwork(ctx context.Context, id fleet.AllocID) error {
	if !fleet.IsName(string(id), 64, "-") {
		return nil // it never had one
	}
	unlock := h.lockAlloc(id)
	defer unlock()
	s, known, err := h.readState(id)
	if err != nil || !known {
		return err
	}
	return h.destroyNetwork(ctx, id, s)
}

// destroyNetwork undoes the steps that createNetwork did, and removes the state last. If a plugin fails for a complete
// network, the state stays, and RemoveOrphans calls the plugins again.
func (h *Hook) destroyNetwork(ctx context.Context, id fleet.AllocID, s State) error {
	err := h.removeFromNetwork(ctx, s)
	if err != nil && !s.Ready {
		h.cfg.Log.Warn("remains of an incomplete network not removed", "alloc_id", string(id), "error", err)
		err = nil
	}
	if s.Creator == "" {
		err = errors.Join(err, removeNamespace(s.Namespace))
	} else if maker, ok := h.cfg.Drivers[s.Creator].(drivers.NetworkCreator); ok {
		err = errors.Join(err, maker.DestroyNetwork(ctx, id))
	}
	if err != nil {
		return fmt.Errorf("remove the network of allocation %s: %w", fleet.Short(id), err)
	}
	return h.removeState(id)
}

// creatorOf returns the driver of a group that makes the namespace itself, or "".
func (h *Hook) creatorOf(g *fleet.TaskGroup) string {
	for i := range g.Tasks {
		if _, ok := h.cfg.Drivers[g.Tasks[i].Driver].(drivers.NetworkCreator); ok {
			return g.Tasks[i].Driver
		}
	}
	return ""
}

// lockAlloc locks the network of one allocation and returns the function that unlocks it.
func (h *Hook) lockAlloc(id fleet.AllocID) func() {
	h.mu.Lock()
	l := h.locks[id]
	if l == nil {
		l = &allocLock{}
		h.locks[id] = l
	}
	l.users++
	h.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(h.locks, id)
		}
	}
}

// replaceDNS returns a copy of a dns block with ${…} replaced; nil stays nil.
func replaceDNS(d *fleet.DNSConfig, replace func(string) string) *fleet.DNSConfig {
	if d == nil {
		return nil
	}
	each := func(list []string) []string {
		var out []string
		for _, s := range list {
			out = append(out, replace(s))
		}
		return out
	}
	return &fleet.DNSConfig{Servers: each(d.Servers), Searches: each(d.Searches), Options: each(d.Options)}
}

// withAllocAddresses returns env with the addresses of the ports inside the allocation's own network, under Nomad's
// names.
func withAllocAddresses(env map[string]string, ports []fleet.AssignedPort, s State) map[string]string {
	if s.IP == "" {
		return env
	}
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	for _, p := range ports {
		label := envName.ReplaceAllString(p.Label, "_")
		env["NOMAD_ALLOC_INTERFACE_"+label], env["NOMAD_ALLOC_IP_"+label] = interfaceName, s.IP
		env["NOMAD_ALLOC_ADDR_"+label] = net.JoinHostPort(s.IP, strconv.Itoa(p.Inside()))
	}
	return env
}

var envName = regexp.MustCompile(`[^A-Za-z0-9_]`)
