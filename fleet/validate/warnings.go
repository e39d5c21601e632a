package validate

import (
	"fmt"
	"slices"
	"strings"

	"skerry/fleet"
)

// Warnings returns the likely mistakes of a valid job, one line each.
func Warnings(j *fleet.Job) []string {
	var out []string
	for _, path := range j.Ignored {
		out = append(out, ignoredLine(path))
	}
	promoting, canaries := 0, 0
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		if g.HasServices() && !hasShutdownDelay(g) {
			out = append(out, fmt.Sprintf("group %q has services, and neither the group nor a task has a shutdown_delay: a client that has just discovered a service may reach a stopping task", g.Name))
		}
		for k := range g.Tasks {
			out = append(append(out, identityWarnings(&g.Tasks[k])...), templateWarnings(&g.Tasks[k])...)
		}
		out = append(append(out, idleWarnings(g)...), idleChecks(g)...)
		u := g.Update
		if u == nil {
			continue
		}
		if u.Canary > 0 {
			canaries++
			if u.AutoPromote {
				promoting++
			}
		}
		if j.Type == fleet.JobTypeService && g.Count > 0 && u.MaxParallel > g.Count {
			out = append(out, fmt.Sprintf("group %q: max_parallel is %d and the count is %d: an update replaces all allocations at once", g.Name, u.MaxParallel, g.Count))
		}
	}
	if promoting > 0 && promoting < canaries {
		out = append(out, fmt.Sprintf("auto_promote is set for %d of %d groups with canaries: no deployment is promoted automatically until it is set for all", promoting, canaries))
	}
	return out
}

// ignoredLine says why a key of a job file is ignored.
func ignoredLine(path string) string {
	key := path[strings.LastIndex(path, ".")+1:]
	why := "jobs are registered without tokens"
	switch key {
	case "IOPS":
		key, why = "iops", "nothing measures or bounds operations of a disk"
	case "MaxClientDisconnect":
		key, why = "max_client_disconnect", "stop_after_client_disconnect is set too and applies; write a disconnect block"
	case "Stop":
		why = "a registered job runs; job stop stops it"
	case "ParentID", "Dispatched", "DispatchIdempotencyToken", "Payload":
		why = "only a dispatch or a periodic launch creates child jobs"
	}
	return fmt.Sprintf("%s at %s is ignored: %s", key, path, why)
}

// idleWarnings names the settings of a group that have no effect: those of old job files, and those
// that other settings decide.
func idleWarnings(g *fleet.TaskGroup) []string {
	var out []string
	idle := func(what, why string) {
		out = append(out, fmt.Sprintf("group %q: %s is ignored: %s", g.Name, what, why))
	}
	if u, usual := g.Update, fleet.DefaultUpdate(fleet.JobTypeService); u != nil && u.Stagger != 0 && u.Stagger != usual.Stagger {
		idle("stagger of the update block", "max_parallel and min_healthy_time define the speed of an update")
	}
	if m, usual := g.Migrate, fleet.DefaultMigrate(fleet.JobTypeService); m != nil {
		if m.HealthCheck != usual.HealthCheck {
			idle("health_check of the migrate block", "a drain uses the health rules of the update block")
		}
		if m.HealthyDeadline != usual.HealthyDeadline {
			idle("healthy_deadline of the migrate block", "a drain waits until the replacements are healthy, or for its own deadline")
		}
	}
	for _, n := range allNetworksOf(g) {
		for _, old := range []struct {
			name string
			used bool
			why  string
		}{
			{"mbits", n.MBits != 0, "bandwidth is neither measured nor limited"},
			{"device", n.Device != "", "host_network of a port selects the edge's network"},
			{"cidr", n.CIDR != "", "host_network of a port selects the edge's network"},
			{"ip", n.IP != "", "a port uses the edge's address, or that of its host_network"},
		} {
			if old.used {
				idle(old.name+" of a network", old.why)
			}
		}
	}
	return out
}

// allNetworksOf returns the networks of a group and of its tasks.
func allNetworksOf(g *fleet.TaskGroup) []fleet.NetworkResource {
	all := slices.Clone(g.Networks)
	for i := range g.Tasks {
		all = append(all, g.Tasks[i].Resources.Networks...)
	}
	return all
}

// idleChecks names the attributes of checks that checks of their type do not have.
func idleChecks(g *fleet.TaskGroup) []string {
	var out []string
	look := func(services []fleet.Service) {
		for _, s := range services {
			for i := range s.Checks {
				c := &s.Checks[i]
				for _, part := range []struct {
					name, of string
					used     bool
				}{
					{"command", fleet.CheckScript, c.Command != ""}, {"args", fleet.CheckScript, len(c.Args) > 0},
					{"grpc_service", fleet.CheckGRPC, c.GRPCService != ""}, {"grpc_use_tls", fleet.CheckGRPC, c.GRPCUseTLS},
				} {
					if part.used && c.Type != part.of {
						out = append(out, fmt.Sprintf("group %q: %s of a check of service %q is ignored: its type is %s, not %s", g.Name, part.name, s.Name, c.Type, part.of))
					}
				}
			}
		}
	}
	look(g.Services)
	for _, t := range g.Tasks {
		look(t.Services)
	}
	return out
}

// hasShutdownDelay reports whether the group or one of its tasks has a shutdown_delay.
func hasShutdownDelay(g *fleet.TaskGroup) bool {
	return g.ShutdownDelay != nil && *g.ShutdownDelay > 0 || slices.ContainsFunc(g.Tasks, func(t fleet.Task) bool { return t.ShutdownDelay > 0 })
}

// templateWarnings says which attributes of templates have no effect.
func templateWarnings(t *fleet.Task) []string {
	for i := range t.Templates {
		if t.Templates[i].VaultGrace != 0 {
			return []string{fmt.Sprintf("task %q: vault_grace is ignored: secrets are read again in time", t.Name)}
		}
	}
	return nil
}

// identityWarnings names the identities of a task without an audience or a ttl.
func identityWarnings(t *fleet.Task) []string {
	var out []string
	for _, w := range t.Identities {
		if w.Name == "" || w.Name == fleet.DefaultIdentity {
			continue
		}
		if len(w.Audience) == 0 {
			out = append(out, fmt.Sprintf("task %q: identity %q has no audience (aud): any service may accept it", t.Name, w.Name))
		}
		if w.TTL == 0 {
			out = append(out, fmt.Sprintf("task %q: identity %q has no ttl: it never expires", t.Name, w.Name))
		}
	}
	return out
}

// HiddenIdentities names the identities of which no task gets a token, one line each.
func HiddenIdentities(j *fleet.Job) []string {
	var out []string
	for g := range j.TaskGroups {
		for i := range j.TaskGroups[g].Tasks {
			t := &j.TaskGroups[g].Tasks[i]
			all := t.Identities
			if t.Identity != nil {
				all = append([]fleet.WorkloadIdentity{*t.Identity}, all...)
			}
			for _, w := range all {
				if !w.File && !w.Env && !t.IsLogin(w.Name) {
					out = append(out, fmt.Sprintf("task %q: identity %q has neither file = true nor env = true: the task does not get its token", t.Name, w.Name))
				}
			}
		}
	}
	return out
}
