// Package fingerprint describes this machine: attributes with Nomad's names, resources, drivers,
// devices. The edge reads the description once before it dials and runs the Fingerprinter beside the
// link, which sends a description that the cluster does not have.
//
// The machine itself is read once; its address, drivers and devices are read again at each interval. A
// change counts when two readings in a row have it, so that a loose contact does not send a description
// every minute. While a driver has changed or is unhealthy, or Consul or Vault has not answered yet, readings are more
// frequent: tasks wait for them. Values that change by themselves (free disk, load, clock rates) are not part of it.
//
// Run belongs to the caller; a reading waits for the goroutines that it starts. The answers of programs are stored.
package fingerprint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"skerry/devices"
	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/programs"
)

const (
	defaultInterval = time.Minute
	// driverInterval is the time to the next reading while a driver has changed or is unhealthy, or Consul or Vault is missing.
	driverInterval = 10 * time.Second
)

// Config of a Fingerprinter. DataDir and Log are required.
type Config struct {
	// Node holds the configured fields: ID, Name, Datacenter, NodePool, NodeClass, Meta, Reserved,
	// Version. Dimensions of Resources above zero replace the found ones.
	Node     fleet.Node
	DataDir  string                    // its disk is measured
	Drivers  map[string]drivers.Driver // by name
	Denied   []string                  // names of drivers that this machine does not offer
	Finders  []devices.Finder
	Interval time.Duration // between readings, at most; 0: a minute
	Root     string        // of the file system with /proc, /sys and /etc; "": /
	// Address returns the address by which others reach this machine; "": none. It is called at each
	// reading. nil: no address.
	Address func() string
	// Networks returns attributes of the networks that tasks can have. It is called at each reading. nil: none.
	Networks func(ctx context.Context) map[string]string
	// Secrets returns attributes of the secrets folders of tasks. It is called at each reading. nil: none.
	Secrets func() map[string]string
	// Consul returns attributes of the Consul agent beside this machine, none while it has never answered. It is called
	// at each reading. nil: no agent is configured.
	Consul func(ctx context.Context) map[string]string
	// Vault does so for the Vault of this machine's tasks.
	Vault func(ctx context.Context) map[string]string
	// Programs keeps what drivers and networks ask programs. Each reading saves it. nil: nothing is kept.
	Programs *programs.Answers
	Log      *slog.Logger
}

// Fingerprinter reads the fleet.Node of this machine and keeps it up to date. Its methods may be called from
// any goroutine.
type Fingerprinter struct {
	cfg Config
	log *slog.Logger

	readMu        sync.Mutex        // held during a reading
	staticMachine *machine          // nil: not read yet
	finderErrors  map[string]string // the last logged error of each kind of device

	mu      sync.Mutex
	node    fleet.Node
	changed chan struct{}
}

// New makes a Fingerprinter. It reads nothing.
func New(cfg Config) (*Fingerprinter, error) {
	if cfg.DataDir == "" || cfg.Log == nil {
		return nil, errors.New("make fingerprinter: a data directory and a logger are required")
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	return &Fingerprinter{
		cfg: cfg, log: cfg.Log.With("component", "fingerprint"), finderErrors: make(map[string]string),
		node: cfg.Node, changed: make(chan struct{}),
	}, nil
}

// Read reads the node from the machine now, stores it and returns it. Its only error is that ctx ended: values
// that cannot be read are left out and logged.
func (f *Fingerprinter) Read(ctx context.Context) (fleet.Node, error) {
	n := f.readNode(ctx)
	if err := ctx.Err(); err != nil {
		return fleet.Node{}, fmt.Errorf("read the node of this machine: %w", err)
	}
	f.publishNode(n)
	return n, nil
}

// Run reads the node again at each interval, until ctx ends. It stores a node that two readings in a row have
// found.
func (f *Fingerprinter) Run(ctx context.Context) error {
	timer := time.NewTimer(f.nextInterval(f.Node()))
	defer timer.Stop()
	seen := "" // hash of the last reading, if it differs from the stored one
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		n := f.readNode(ctx)
		timer.Reset(f.nextInterval(n))
		switch {
		case ctx.Err() != nil:
			return nil
		case n.DescriptionHash == f.Node().DescriptionHash:
			seen = ""
		case n.DescriptionHash != seen:
			seen = n.DescriptionHash
		default:
			f.log.Info("machine description changed", "description_hash", n.DescriptionHash)
			f.publishNode(n)
			seen = ""
		}
	}
}

// nextInterval returns the time from the reading n to the next one.
func (f *Fingerprinter) nextInterval(n fleet.Node) time.Duration {
	node := f.Node()
	if f.cfg.Consul != nil && !(n.HasConsul() && node.HasConsul()) || f.cfg.Vault != nil && !(n.HasVault() && node.HasVault()) {
		return min(driverInterval, f.cfg.Interval)
	}
	stored := node.Drivers
	for name, info := range n.Drivers {
		before := stored[name]
		if info.Detected && !info.Healthy || info.Detected != before.Detected || info.Healthy != before.Healthy {
			return min(driverInterval, f.cfg.Interval)
		}
	}
	return f.cfg.Interval
}

// Node returns the newest stored node, with DescriptionHash set. Before the first Read it returns the
// configured fields only. Its contents are shared and must not be changed.
func (f *Fingerprinter) Node() fleet.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node
}

// Changed returns a channel that is closed when the stored node next changes.
func (f *Fingerprinter) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// publishNode stores a node and closes the channel of Changed, if its hash differs from the stored one's.
func (f *Fingerprinter) publishNode(n fleet.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.DescriptionHash == f.node.DescriptionHash {
		return
	}
	f.node = n
	close(f.changed)
	f.changed = make(chan struct{})
}

// readNode returns this machine's node as it is now: the configured fields, the machine (read once only), its
// address, drivers and devices. It logs the values that cannot be read.
func (f *Fingerprinter) readNode(ctx context.Context) fleet.Node {
	f.readMu.Lock()
	defer f.readMu.Unlock()
	if f.staticMachine == nil {
		m, err := readMachine(f.cfg.Root, f.cfg.DataDir)
		if err != nil {
			f.log.Warn("the machine's description is incomplete: configure the missing values", "error", err)
		}
		f.staticMachine = &m
	}
	n := f.cfg.Node
	n.Attributes = maps.Clone(f.staticMachine.attributes)
	if f.cfg.Address != nil {
		if ip := f.cfg.Address(); ip != "" {
			n.Attributes[fleet.AttributeIPAddress] = ip
		}
	}
	if f.cfg.Networks != nil {
		maps.Copy(n.Attributes, f.cfg.Networks(ctx))
	}
	if f.cfg.Secrets != nil {
		maps.Copy(n.Attributes, f.cfg.Secrets())
	}
	if f.cfg.Consul != nil {
		maps.Copy(n.Attributes, f.cfg.Consul(ctx))
	}
	if f.cfg.Vault != nil {
		maps.Copy(n.Attributes, f.cfg.Vault(ctx))
	}
	n.Resources = overrideResources(f.staticMachine.resources, f.cfg.Node.Resources)
	n.Drivers = f.fingerprintDrivers(ctx, n.Attributes)
	n.Devices = f.findDevices(ctx)
	n.DescriptionHash = hexHash(n)
	if f.cfg.Programs != nil {
		if err := f.cfg.Programs.Save(); err != nil {
			f.log.Warn("answers of programs not kept: the next start of the agent asks again", "error", err)
		}
	}
	return n
}

// fingerprintDrivers returns each driver's fingerprint, by name. It asks all at once, because a daemon may hang. It adds an
// attribute for each working driver to attrs, so that constraints can ask for it.
func (f *Fingerprinter) fingerprintDrivers(ctx context.Context, attrs map[string]string) map[string]fleet.DriverInfo {
	infos := make(map[string]fleet.DriverInfo, len(f.cfg.Drivers))
	var asking sync.WaitGroup
	var mu sync.Mutex // guards infos and attrs
	for name, d := range f.cfg.Drivers {
		asking.Go(func() {
			info := fleet.DriverInfo{HealthDescription: "denied by --driver-denylist of this edge"}
			if !slices.Contains(f.cfg.Denied, name) {
				info = d.Fingerprint(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			infos[name] = info
			if info.Detected && info.Healthy {
				attrs["driver."+name] = "1"
			}
		})
	}
	asking.Wait()
	return infos
}

// findDevices returns the devices that the finders find. It logs an error of a finder when that has changed.
func (f *Fingerprinter) findDevices(ctx context.Context) []fleet.Device {
	var all []fleet.Device
	for _, finder := range f.cfg.Finders {
		found, err := finder.Find(ctx)
		why := ""
		if err != nil {
			why = err.Error()
		}
		if why != f.finderErrors[finder.Kind()] && ctx.Err() == nil {
			f.finderErrors[finder.Kind()] = why
			f.log.Warn("unreadable devices of a kind have changed", "kind", finder.Kind(), "error", why)
		}
		all = append(all, found...)
	}
	return all
}

// overrideResources returns the found resources, with each dimension that is configured above zero in its
// place.
func overrideResources(found, configured fleet.Resources) fleet.Resources {
	for _, d := range []struct{ found, configured *int }{
		{&found.CPU, &configured.CPU}, {&found.MemoryMB, &configured.MemoryMB}, {&found.DiskMB, &configured.DiskMB},
	} {
		if *d.configured > 0 {
			*d.found = *d.configured
		}
	}
	return found
}
