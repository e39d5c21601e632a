package checks

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/internal/sorting"
)

// Statuses of a check.
const (
	Success = "success"
	Failure = "failure"
	Warning = "warning" // counts as a success for check_restart and an update, if the job ignores warnings
	Pending = "pending" // not run yet
)

// Modes of a check.
const (
	Healthiness = "healthiness" // an update waits for it
	Readiness   = "readiness"   // it is shown only
)

// check is one check of a service in an allocation, with all variables interpolated.
type check struct {
	fleet.ServiceCheck
	id, service, task string // task is "" for a service of the group
	address           string // HOST:PORT
	machineHost       string // HOST if it is this machine's address; "": the service sets another one
	problem           string // why it cannot run; "": it can
	asConsul          bool   // an http check has the results that Consul gives it
	countsForHealth   bool   // the allocation's health depends on it
	restartTarget     string // task to restart, and to run a script in; "": all
	alloc             fleet.AllocID
	started           time.Duration // of the task, or of the last of the group's tasks, since boot
}

// checksOf returns the checks of an allocation that must run now: those of its group while all its
// lasting tasks run, those of a task while the task runs. since is the start of each running task.
func checksOf(a *fleet.Alloc, n *fleet.Node, since map[string]time.Duration) []check {
	g := a.Group()
	if g == nil {
		return nil
	}
	var found []check
	latest, all := time.Duration(0), true
	for _, t := range g.Tasks {
		started, running := since[t.Name]
		if t.RunsUntilStopped() {
			latest, all = max(latest, started), all && running
		}
		for i := range t.Services {
			if running {
				found = append(found, checksOfService(a, n, &t.Services[i], t.Name, started)...)
			}
		}
	}
	for i := range g.Services {
		if all {
			found = append(found, checksOfService(a, n, &g.Services[i], "", latest)...)
		}
	}
	return found
}

// checksOfService returns the checks of a service of the group ("") or of a task, with all variables
// interpolated. started is when the task started, since boot.
func checksOfService(a *fleet.Alloc, n *fleet.Node, s *fleet.Service, task string, started time.Duration) []check {
	if len(s.Checks) == 0 {
		return nil
	}
	where := taskenv.Place{Alloc: a, Node: n, Task: task, Region: a.Job.Region}
	env := taskenv.New(where)
	said := taskenv.Service(s, env)
	found := make([]check, 0, len(s.Checks))
	for i, sc := range s.Checks {
		c := check{ServiceCheck: sc, service: said.Name, task: task, countsForHealth: sc.OnUpdate != fleet.OnUpdateIgnore, started: started, alloc: a.ID}
		c.asConsul = s.Provider == fleet.ProviderConsul
		c.Command, c.Args = env.Replace(sc.Command), make([]string, len(sc.Args))
		for k, arg := range sc.Args {
			c.Args[k] = env.Replace(arg)
		}
		c.GRPCService = env.Replace(sc.GRPCService)
		c.Path, c.Body, c.Method = env.Replace(sc.Path), env.Replace(sc.Body), env.Replace(sc.Method)
		c.Protocol, c.TLSServerName = env.Replace(sc.Protocol), env.Replace(sc.TLSServerName)
		c.Header = make(map[string][]string, len(sc.Header))
		for k, list := range sc.Header {
			for _, v := range list {
				c.Header[k] = append(c.Header[k], env.Replace(v))
			}
		}
		c.Name = cmp.Or(env.Replace(sc.Name), DefaultName(said.Name))
		c.restartTarget = cmp.Or(sc.TaskName, s.TaskName, task)
		c.id = ResultID(a.ID, task, &said, i)
		if needsAddress(sc.Type) {
			c.resolveAddress(where, &said, env.Replace(sc.PortLabel))
		}
		found = append(found, c)
	}
	return found
}

// DefaultName returns the name of a check of a service that has none.
func DefaultName(service string) string { return fmt.Sprintf("service: %q check", service) }

// resolveAddress sets c.address from the label of a port ("": the service's) and the address of the service ("": that of
// the address mode), or c.problem if the allocation has no such port. A check with a port of its own has the mode host,
// unless it says another one.
func (c *check) resolveAddress(where taskenv.Place, s *fleet.Service, label string) {
	mode := c.AddressMode
	if mode == "" && label == "" {
		mode = s.AddressMode
	}
	label = cmp.Or(label, s.PortLabel)
	ip, port, ok := taskenv.Endpoint(where, label, mode)
	if !ok || port == 0 {
		c.problem = fmt.Sprintf("the allocation has no port %q", label)
		return
	}
	if s.Address == "" && mode != fleet.AddressAlloc && mode != fleet.AddressDriver {
		c.machineHost = ip
	}
	c.address = net.JoinHostPort(cmp.Or(s.Address, ip, "127.0.0.1"), strconv.Itoa(port))
}

// ResultID returns the id of the result of the i-th check of a service whose ${…} are replaced; task is "" for a
// service of the group. It is the same after a restart of the agent.
func ResultID(a fleet.AllocID, task string, s *fleet.Service, i int) string {
	parts := []string{string(a), task, s.Name, s.PortLabel, s.Checks[i].Name, strconv.Itoa(i)}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// pendingResult returns the result that is shown until the check has run once.
func (c *check) pendingResult(a *fleet.Alloc) fleet.CheckResult {
	mode := Healthiness
	if !c.countsForHealth {
		mode = Readiness
	}
	return fleet.CheckResult{ID: c.id, Check: c.Name, Group: a.Name, Mode: mode, Service: c.service, Task: c.task, Status: initialStatuses[c.InitialStatus], Output: "not done yet"}
}

// countsAsPassing reports whether a status counts as passing for an update.
func (c *check) countsAsPassing(status string) bool {
	return status == Success || status == Warning && c.OnUpdate == fleet.OnUpdateIgnoreWarnings
}

// countsAsFailure reports whether a status counts for check_restart.
func (c *check) countsAsFailure(status string) bool {
	return status == Failure || status == Warning && (c.CheckRestart == nil || !c.CheckRestart.IgnoreWarnings)
}

// firstFailure says which of the failing checks is the first by name, and why it fails; "": none fails. It
// sorts failing.
func firstFailure(failing []fleet.CheckResult) string {
	if len(failing) == 0 {
		return ""
	}
	sorting.Slice(failing, func(x, y fleet.CheckResult) int {
		return cmp.Or(strings.Compare(x.Service, y.Service), strings.Compare(x.Check, y.Check))
	})
	r := failing[0]
	return fmt.Sprintf("check %q of service %q: %s", r.Check, r.Service, r.Output)
}
