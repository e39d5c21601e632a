package fleet

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// validateParts checks what a group asks for beside its tasks, and what its tasks ask
// for of that.
func (g *TaskGroup) validateParts(ps *Problems, path string) {
	checkAffinities(ps, path, g.Affinities)
	checkSpreads(ps, path, g.Spreads)
	if g.ShutdownDelay != nil {
		checkDuration(ps, path+".ShutdownDelay", *g.ShutdownDelay)
	}
	if g.Scaling != nil {
		g.Scaling.validateScalingPolicy(ps, path+".Scaling", g.Count)
	}
	checkNetworks(ps, path+".Networks", g.Networks)
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		g.Volumes[name].validateVolume(ps, path+".Volumes."+name, g.Update)
	}
	g.validateServices(ps, path)
	if u := g.Update; u != nil && u.ProgressDeadline > 0 {
		for i, t := range g.Tasks {
			if t.KillTimeout > u.ProgressDeadline {
				ps.add(fmt.Sprintf("%s.Tasks[%d].KillTimeout", path, i), "%s is longer than the update's progress_deadline of %s",
					t.KillTimeout, u.ProgressDeadline)
			}
		}
	}
}

var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

func checkNetworks(ps *Problems, path string, networks []NetworkResource) {
	labels, static := map[string]bool{}, map[string]string{}
	for i, n := range networks {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case n.Mode == NetworkHost, n.Mode == NetworkBridge, n.Mode == NetworkNone, strings.HasPrefix(n.Mode, "cni/"):
		case strings.Contains(n.Mode, "${"): // told at run time
		default:
			ps.addHint(at+".Mode", "it is host, bridge, none or cni/NAME", "unknown network mode %q", n.Mode)
		}
		if n.Hostname != "" && !strings.Contains(n.Hostname, "${") && (len(n.Hostname) > 253 || !hostname.MatchString(n.Hostname)) {
			ps.add(at+".Hostname", "%q is no name of a host", n.Hostname)
		}
		for _, list := range []struct {
			name  string
			ports []Port
		}{{"ReservedPorts", n.ReservedPorts}, {"DynamicPorts", n.DynamicPorts}} {
			for k, p := range list.ports {
				p.validatePort(ps, fmt.Sprintf("%s.%s[%d]", at, list.name, k), n.Mode, labels, static)
			}
		}
	}
}

func (p Port) validatePort(ps *Problems, path, mode string, labels map[string]bool, static map[string]string) {
	switch {
	case p.Label == "":
		ps.add(path+".Label", "a port needs a name")
	case labels[p.Label]:
		ps.add(path+".Label", "port %q is there twice", p.Label)
	}
	labels[p.Label] = true
	if p.Value < 0 || p.Value > 65535 {
		ps.add(path+".Value", "must be between 0 and 65535, not %d", p.Value)
	}
	if p.To < -1 || p.To > 65535 {
		ps.add(path+".To", "must be between -1 and 65535, not %d", p.To)
	}
	if p.IgnoreCollision {
		if mode != NetworkHost {
			ps.add(path+".IgnoreCollision", "collisions of port %q can be ignored in mode host alone, not in %q", p.Label, mode)
		}
		return
	}
	if p.Value == 0 {
		return
	}
	key := p.HostNetwork + ":" + strconv.Itoa(p.Value)
	if first, taken := static[key]; taken {
		ps.add(path+".Value", "port %d is taken already by port %q", p.Value, first)
	} else {
		static[key] = p.Label
	}
}

func (v VolumeRequest) validateVolume(ps *Problems, path string, u *Update) {
	if v.Type != VolumeHost && v.Type != VolumeCSI {
		return // Nomad's clients leave it out; a task that mounts it is refused
	}
	if v.Source == "" {
		ps.add(path+".Source", "volume %q needs a source", v.Name)
	}
	if v.Type == VolumeCSI {
		if v.AttachmentMode == "" {
			ps.add(path+".AttachmentMode", "volume %q needs an attachment_mode", v.Name)
		}
		if v.AccessMode == "" {
			ps.add(path+".AccessMode", "volume %q needs an access_mode", v.Name)
		}
	}
	if v.PerAlloc && u != nil && u.Canary > 0 {
		ps.add(path+".PerAlloc", "volume %q cannot be per_alloc while there are canaries", v.Name)
	}
}

// validateServices checks the services of the group and of its tasks.
func (g *TaskGroup) validateServices(ps *Problems, path string) {
	provider := ""
	one := func(s *Service, at string) {
		if provider == "" {
			provider = s.Provider
		}
		if s.Provider != provider {
			ps.add(at+".Provider", "the services of a group have one provider: %s, not %s", provider, s.Provider)
		}
	}
	seen := map[string]bool{}
	for i := range g.Services {
		s, at := &g.Services[i], fmt.Sprintf("%s.Services[%d]", path, i)
		one(s, at)
		s.validateService(ps, at, serviceContext{group: g, seen: seen})
	}
	for k := range g.Tasks {
		t, seen := &g.Tasks[k], map[string]bool{}
		for i := range t.Services {
			s, at := &t.Services[i], fmt.Sprintf("%s.Tasks[%d].Services[%d]", path, k, i)
			one(s, at)
			s.validateService(ps, at, serviceContext{group: g, task: t, seen: seen})
		}
	}
}

// serviceContext says where a service stands.
type serviceContext struct {
	group *TaskGroup
	task  *Task // nil: the group's own
	seen  map[string]bool
}

var (
	serviceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	reference   = regexp.MustCompile(`\$\{[^}]*\}`)
)

func (s *Service) validateService(ps *Problems, path string, where serviceContext) {
	if name := reference.ReplaceAllString(s.Name, "x"); len(name) > 63 || !serviceName.MatchString(name) {
		ps.add(path+".Name", "%q cannot name a service: letters, digits and dashes, at most 63", s.Name)
	}
	if key := s.Name + ":" + s.PortLabel; where.seen[key] {
		ps.add(path+".Name", "service %q is there twice", s.Name)
	} else {
		where.seen[key] = true
	}
	switch s.Provider {
	case ProviderConsul:
	case ProviderNomad:
		if len(s.Connect) > 0 {
			ps.addHint(path+".Connect", "leave out connect", "services of provider %s have no mesh", s.Provider)
		}
	default:
		ps.addHint(path+".Provider", "it is nomad or consul", "unknown provider of services %q", s.Provider)
	}
	switch s.AddressMode {
	case AddressAuto, AddressAlloc, AddressAlloc6, AddressDriver, AddressHost:
	default:
		ps.addHint(path+".AddressMode", "it is auto, alloc, driver or host", "unknown address mode %q", s.AddressMode)
	}
	checkOnUpdate(ps, path, s.OnUpdate)
	if where.task != nil && !where.hasPort(s) {
		ps.add(path+".PortLabel", "there is no port %q", s.PortLabel)
	}
	if where.task != nil && s.TaskName != where.task.Name {
		ps.addHint(path+".TaskName", "leave task out, or make the service one of the group",
			"another task, %q, is not supported: a task's service is of that task, %q", s.TaskName, where.task.Name)
	}
	for i := range s.Checks {
		s.Checks[i].validateServiceCheck(ps, fmt.Sprintf("%s.Checks[%d]", path, i), s, where)
	}
	if s.CheckRestart != nil {
		s.CheckRestart.validateCheckRestart(ps, path+".CheckRestart")
	}
}

// hasPort reports whether the port that a task's service names is there.
func (w serviceContext) hasPort(s *Service) bool {
	if s.PortLabel == "" || s.AddressMode != AddressAuto && s.AddressMode != AddressHost || strings.Contains(s.PortLabel, "${") {
		return true
	}
	if _, err := strconv.Atoi(s.PortLabel); err == nil {
		return true
	}
	for _, networks := range [][]NetworkResource{w.group.Networks, w.task.Resources.Networks} {
		for _, n := range networks {
			for _, p := range append(slices.Clone(n.ReservedPorts), n.DynamicPorts...) {
				if p.Label == s.PortLabel {
					return true
				}
			}
		}
	}
	return false
}

func checkOnUpdate(ps *Problems, path, on string) {
	switch on {
	case OnUpdateRequireHealthy, OnUpdateIgnoreWarnings, OnUpdateIgnore:
	default:
		ps.addHint(path+".OnUpdate", "it is require_healthy, ignore_warnings or ignore", "unknown on_update %q", on)
	}
}

func (c *ServiceCheck) validateServiceCheck(ps *Problems, path string, s *Service, where serviceContext) {
	switch c.Type {
	case CheckTCP:
	case CheckHTTP:
		if u, err := url.Parse(c.Path); c.Path == "" || err != nil || u.IsAbs() {
			ps.add(path+".Path", "an http check needs a path such as /health, not %q", c.Path)
		}
	case CheckGRPC, CheckScript:
		if s.Provider == ProviderNomad {
			ps.addHint(path+".Type", "write type = \"http\" or \"tcp\"", "services of provider %s have checks of type http and tcp, not %s", s.Provider, c.Type)
		}
		if c.Type == CheckScript && c.Command == "" {
			ps.add(path+".Command", "a script check needs a command")
		}
		if c.Type == CheckScript && where.task == nil && c.TaskName == "" && s.TaskName == "" {
			ps.add(path+".TaskName", "a script check of a group's service needs the task that it runs in")
		}
	default:
		ps.addHint(path+".Type", "it is grpc, tcp, http or script", "unknown type of check %q", c.Type)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Interval", c.Interval}, {"Timeout", c.Timeout}} {
		if d.value < time.Second {
			ps.add(path+"."+d.name, "must be at least 1s, not %s", d.value)
		}
		checkDuration(ps, path+"."+d.name, max(0, d.value))
	}
	switch c.InitialStatus {
	case "", "passing", "pending", "warning", "critical":
	default:
		ps.addHint(path+".InitialStatus", "it is passing, pending, warning or critical", "unknown status %q", c.InitialStatus)
	}
	checkOnUpdate(ps, path, c.OnUpdate)
	if c.CheckRestart != nil {
		c.CheckRestart.validateCheckRestart(ps, path+".CheckRestart")
	}
}

func (c *CheckRestart) validateCheckRestart(ps *Problems, path string) {
	if c.Limit < 0 {
		ps.add(path+".Limit", "may not be negative: %d", c.Limit)
	}
	checkDuration(ps, path+".Grace", c.Grace)
}
