package validate

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
)

// validateServices checks the services of the group and of its tasks.
func validateServices(g *fleet.TaskGroup, ps *fleet.Problems, path string) {
	provider := ""
	one := func(s *fleet.Service, at string) {
		if provider == "" {
			provider = s.Provider
		}
		if s.Provider != provider {
			ps.Add(at+".Provider", "the services of a group have one provider: %s, not %s", provider, s.Provider)
		}
	}
	seen := map[string]bool{}
	for i := range g.Services {
		s, at := &g.Services[i], fmt.Sprintf("%s.Services[%d]", path, i)
		one(s, at)
		validateService(s, ps, at, serviceContext{group: g, seen: seen})
	}
	for k := range g.Tasks {
		t, seen := &g.Tasks[k], map[string]bool{}
		for i := range t.Services {
			s, at := &t.Services[i], fmt.Sprintf("%s.Tasks[%d].Services[%d]", path, k, i)
			one(s, at)
			validateService(s, ps, at, serviceContext{group: g, task: t, seen: seen})
		}
	}
}

// serviceContext says where a service stands.
type serviceContext struct {
	group *fleet.TaskGroup
	task  *fleet.Task // nil: the group's own
	seen  map[string]bool
}

var (
	reference = regexp.MustCompile(`\$\{[^}]*\}`)
)

func validateService(s *fleet.Service, ps *fleet.Problems, path string, where serviceContext) {
	if name := reference.ReplaceAllString(s.Name, "x"); !fleet.ValidServiceName(name) {
		ps.Add(path+".Name", "%q cannot name a service: a name has at most 63 letters, digits and dashes", s.Name)
	}
	if key := s.Name + ":" + s.PortLabel; where.seen[key] {
		ps.Add(path+".Name", "service %q is defined twice", s.Name)
	} else {
		where.seen[key] = true
	}
	switch s.Provider {
	case fleet.ProviderConsul:
	case fleet.ProviderNomad:
		if len(s.Connect) > 0 {
			ps.AddHint(path+".Connect", "leave out connect", "services of provider %s have no mesh", s.Provider)
		}
	default:
		ps.AddHint(path+".Provider", "it is nomad or consul", "unknown provider of services %q", s.Provider)
	}
	checkOneOf(ps, path+".AddressMode", "it is auto, alloc, driver or host", "unknown address mode", s.AddressMode,
		fleet.AddressAuto, fleet.AddressAlloc, fleet.AddressAlloc6, fleet.AddressDriver, fleet.AddressHost)
	checkOnUpdate(ps, path, s.OnUpdate)
	if where.task != nil && !where.hasPort(s) {
		ps.Add(path+".PortLabel", "there is no port %q", s.PortLabel)
	}
	if where.task != nil && s.TaskName != where.task.Name {
		ps.AddHint(path+".TaskName", "leave task out, or make the service one of the group",
			"task %q is not supported: the service belongs to its own task, %q", s.TaskName, where.task.Name)
	}
	if s.Weights != nil {
		checkNotNegative(ps, path+".Weights.Passing", s.Weights.Passing)
		checkNotNegative(ps, path+".Weights.Warning", s.Weights.Warning)
	}
	for i := range s.Checks {
		validateServiceCheck(&s.Checks[i], ps, fmt.Sprintf("%s.Checks[%d]", path, i), s, where)
	}
	if s.CheckRestart != nil {
		validateCheckRestart(s.CheckRestart, ps, path+".CheckRestart")
	}
	if s.Identity != nil {
		validateServiceIdentity(s, ps, path+".Identity")
	}
}

// maxServiceIdentity bounds the name of the identity of a service, in bytes.
const maxServiceIdentity = 200

// validateServiceIdentity checks the identity with which an edge logs in to Consul for a service.
func validateServiceIdentity(s *fleet.Service, ps *fleet.Problems, at string) {
	validateIdentityTimes(s.Identity, ps, at)
	switch name := s.IdentityName(); {
	case s.Provider != fleet.ProviderConsul:
		ps.AddHint(at, "leave it out: edges log in to Consul with it", "the identity of a service of provider %s is not supported", s.Provider)
	case s.Identity.Name != name:
		ps.AddHint(at+".Name", "leave it out", "the identity of the service has the name %s, and not %.64q", name, s.Identity.Name)
	case strings.Contains(name, "${"):
		ps.AddHint(at, "write the name and the port without ${…}", "an identity of a service with ${…} in its name or port is not supported: hubs sign it before its node is known")
	case len(name) > maxServiceIdentity:
		ps.Add(at, "the identity would have the name %.64s…: at most %d bytes are allowed", name, maxServiceIdentity)
	}
}

// hasPort reports whether the port that a task's service names is there.
func (w serviceContext) hasPort(s *fleet.Service) bool {
	if s.PortLabel == "" || s.AddressMode != fleet.AddressAuto && s.AddressMode != fleet.AddressHost || strings.Contains(s.PortLabel, "${") {
		return true
	}
	if _, err := strconv.Atoi(s.PortLabel); err == nil {
		return true
	}
	for _, networks := range [][]fleet.NetworkResource{w.group.Networks, w.task.Resources.Networks} {
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

func checkOnUpdate(ps *fleet.Problems, path, on string) {
	checkOneOf(ps, path+".OnUpdate", "it is require_healthy, ignore_warnings or ignore", "unknown on_update", on,
		fleet.OnUpdateRequireHealthy, fleet.OnUpdateIgnoreWarnings, fleet.OnUpdateIgnore)
}

func validateServiceCheck(c *fleet.ServiceCheck, ps *fleet.Problems, path string, s *fleet.Service, where serviceContext) {
	switch c.Type {
	case fleet.CheckTCP:
	case fleet.CheckHTTP:
		if u, err := url.Parse(c.Path); c.Path == "" || err != nil || u.IsAbs() {
			ps.Add(path+".Path", "an http check needs a path such as /health, not %q", c.Path)
		}
	case fleet.CheckGRPC:
	case fleet.CheckScript:
		validateScriptCheck(c, ps, path, s, where)
	default:
		ps.AddHint(path+".Type", "it is grpc, tcp, http or script", "unknown type of check %q", c.Type)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Interval", c.Interval}, {"Timeout", c.Timeout}} {
		if d.value < time.Second {
			ps.Add(path+"."+d.name, "must be at least 1s, not %s", d.value)
		}
		checkDuration(ps, path+"."+d.name, max(0, d.value))
	}
	checkOneOf(ps, path+".InitialStatus", "it is passing, pending, warning or critical", "unknown status", c.InitialStatus,
		"", "passing", "pending", "warning", "critical")
	validateThresholds(c, ps, path)
	checkOnUpdate(ps, path, c.OnUpdate)
	if c.CheckRestart != nil {
		validateCheckRestart(c.CheckRestart, ps, path+".CheckRestart")
	}
}

// validateScriptCheck checks the parts that only a script check has.
func validateScriptCheck(c *fleet.ServiceCheck, ps *fleet.Problems, path string, s *fleet.Service, where serviceContext) {
	if c.Command == "" {
		ps.Add(path+".Command", "a script check needs a command")
	}
	task := cmp.Or(c.TaskName, s.TaskName)
	switch {
	case where.task == nil && task == "":
		ps.Add(path+".TaskName", "a script check of a group's service needs the task that it runs in")
	case where.task == nil && where.group.Task(task) == nil:
		ps.Add(path+".TaskName", "there is no task %q", task)
	}
}

// maxThreshold bounds how many results in a row a check may ask for.
const maxThreshold = 1000

// validateThresholds checks how many results in a row a check asks for.
func validateThresholds(c *fleet.ServiceCheck, ps *fleet.Problems, path string) {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"SuccessBeforePassing", c.SuccessBeforePassing}, {"FailuresBeforeCritical", c.FailuresBeforeCritical}, {"FailuresBeforeWarning", c.FailuresBeforeWarning},
	} {
		checkNotNegative(ps, path+"."+n.name, n.value)
		if n.value > maxThreshold {
			ps.Add(path+"."+n.name, "at most %d are allowed, not %d", maxThreshold, n.value)
		}
	}
	if c.FailuresBeforeWarning > c.FailuresBeforeCritical {
		ps.Add(path+".FailuresBeforeWarning", "may not be more than failures_before_critical: %d and %d", c.FailuresBeforeWarning, c.FailuresBeforeCritical)
	}
}

func validateCheckRestart(c *fleet.CheckRestart, ps *fleet.Problems, path string) {
	checkNotNegative(ps, path+".Limit", c.Limit)
	checkDuration(ps, path+".Grace", c.Grace)
}
