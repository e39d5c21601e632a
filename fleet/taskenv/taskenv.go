// Package taskenv makes the environment of a task, replaces ${…} in its configuration, and derives
// the services that an allocation registers. The runner and the checks of an edge call it, and the
// hub's state and API.
//
// It is pure: it starts no goroutine, reads no clock and does no I/O.
package taskenv

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"skerry/fleet"
)

// Service returns a copy of a service with ${…} replaced.
func Service(s *fleet.Service, env Env) fleet.Service {
	c := *s
	c.Name, c.PortLabel, c.Address = env.Replace(s.Name), env.Replace(s.PortLabel), env.Replace(s.Address)
	c.Tags, c.CanaryTags = replaceEach(env, s.Tags), replaceEach(env, s.CanaryTags)
	c.Meta, c.CanaryMeta = replaceValues(env, s.Meta), replaceValues(env, s.CanaryMeta)
	c.TaggedAddresses = replaceValues(env, s.TaggedAddresses)
	return c
}

func replaceEach(env Env, list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = env.Replace(s)
	}
	return out
}

func replaceValues(env Env, m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = env.Replace(v)
	}
	return out
}

// Place says where a task runs: its environment is made of it. Alloc.Job must be set.
type Place struct {
	Alloc  *fleet.Alloc
	Node   *fleet.Node
	Task   string
	Region string
	// As the task sees them.
	AllocDir   string // NOMAD_ALLOC_DIR: shared by the group's tasks
	TaskDir    string // NOMAD_TASK_DIR: the task's own
	SecretsDir string // NOMAD_SECRETS_DIR
	// Secrets are items of the task's secrets, for WithSecrets. The env block may use them.
	Secrets map[string]string
}

// Env is the environment of one task, which also resolves ${…} in its configuration. It is
// immutable.
type Env struct {
	vars    map[string]string
	node    *fleet.Node
	secrets map[string]string // by reference
}

// New makes the environment of a task: the NOMAD_… variables, then the task's env block. A
// variable of the block may use NOMAD_…, the node's properties and secrets, not another variable.
func New(p Place) Env {
	base := Env{vars: placeVars(p), node: p.Node}
	g := p.Alloc.Group()
	if g == nil {
		return base
	}
	t := g.Task(p.Task)
	if t == nil {
		return base
	}
	vars, known := maps.Clone(base.vars), base.WithSecrets(p.Secrets)
	for k, v := range t.Env {
		vars[k] = known.Replace(v)
	}
	return Env{vars: vars, node: p.Node}
}

// NewBefore makes the part of a task's environment that is known before an allocation is placed on a node: variables
// that have the same value in every allocation there. ${…} with another one stays as it is.
func NewBefore(job *fleet.Job, group, task string, node *fleet.Node) Env {
	env, other := newPlaceholder(job, group, task, node, 0), newPlaceholder(job, group, task, node, 1)
	maps.DeleteFunc(env.vars, func(k, v string) bool { return other.vars[k] != v })
	return env
}

// newPlaceholder makes the environment of a task of an allocation that does not exist.
func newPlaceholder(job *fleet.Job, group, task string, node *fleet.Node, index int) Env {
	id := fleet.DeriveUUID("placeholder", strconv.Itoa(index))
	return New(Place{
		Alloc: &fleet.Alloc{
			ID: fleet.AllocID(id), Name: fmt.Sprintf("%s.%s[%d]", job.ID, group, index), Namespace: job.Namespace, JobID: job.ID, Job: job, TaskGroup: group,
		},
		Node: node, Task: task, Region: job.Region, AllocDir: "/a" + id, TaskDir: "/t" + id, SecretsDir: "/s" + id,
	})
}

// With returns the environment with further variables, which replace those of the same name.
func (e Env) With(more map[string]string) Env {
	if len(more) == 0 {
		return e
	}
	vars := make(map[string]string, len(e.vars)+len(more))
	maps.Copy(vars, e.vars)
	maps.Copy(vars, more)
	return Env{vars: vars, node: e.node, secrets: e.secrets}
}

// WithSecrets returns the environment with items of secrets, by reference (secret.NAME.KEY). They are no variables.
func (e Env) WithSecrets(items map[string]string) Env {
	e.secrets = items
	return e
}

// Vars returns the environment, by name.
func (e Env) Vars() map[string]string { return maps.Clone(e.vars) }

// Environ returns the environment as sorted NAME=VALUE.
func (e Env) Environ() []string {
	list := make([]string, 0, len(e.vars))
	for _, k := range slices.Sorted(maps.Keys(e.vars)) {
		list = append(list, k+"="+e.vars[k])
	}
	return list
}

// Replace replaces every known ${…}: attr.…, meta.…, node.…, secret.…, env.NAME, env["NAME"] and NAME.
// Unknown ones stay, and a replacement is not replaced again.
func (e Env) Replace(s string) string {
	if !strings.Contains(s, "${") {
		return s
	}
	var out strings.Builder
	for {
		start := strings.Index(s, "${")
		if start < 0 {
			break
		}
		length := strings.IndexByte(s[start:], '}')
		if length < 0 {
			break
		}
		end := start + length + 1
		out.WriteString(s[:start])
		if v, ok := e.resolveReference(strings.TrimSpace(s[start+2 : end-1])); ok {
			out.WriteString(v)
		} else {
			out.WriteString(s[start:end])
		}
		s = s[end:]
	}
	out.WriteString(s)
	return out.String()
}

// ReplaceAll returns a copy of a task's Config with ${…} replaced in every value.
func (e Env) ReplaceAll(config map[string]any) map[string]any {
	if config == nil {
		return nil
	}
	return e.replaceAny(config).(map[string]any)
}

func (e Env) replaceAny(v any) any {
	switch v := v.(type) {
	case string:
		return e.Replace(v)
	case []string:
		list := make([]string, len(v))
		for i := range v {
			list[i] = e.Replace(v[i])
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = e.replaceAny(v[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[k] = e.replaceAny(x)
		}
		return m
	case map[any]any: // as CBOR gives a map inside any
		m := make(map[string]any, len(v))
		for k, x := range v {
			if key, ok := k.(string); ok {
				m[key] = e.replaceAny(x)
			}
		}
		return m
	}
	return v
}

func (e Env) resolveReference(name string) (string, bool) {
	if strings.HasPrefix(name, fleet.SecretPrefix) {
		v, ok := e.secrets[name]
		return v, ok
	}
	if key, ok := strings.CutPrefix(name, "env."); ok {
		return e.lookUpVariable(key)
	}
	if key, ok := strings.CutPrefix(name, "env["); ok {
		return e.lookUpVariable(strings.Trim(key, `"]`))
	}
	if e.node != nil {
		if v, ok := e.node.Property(name); ok {
			return v, ok
		}
	}
	return e.lookUpVariable(name)
}

func (e Env) lookUpVariable(name string) (string, bool) {
	v, ok := e.vars[name]
	return v, ok
}

// placeVars makes the NOMAD_… variables, without the task's own.
func placeVars(p Place) map[string]string {
	a := p.Alloc
	vars := map[string]string{
		"NOMAD_ALLOC_ID":       string(a.ID),
		"NOMAD_SHORT_ALLOC_ID": fleet.Short(a.ID),
		"NOMAD_ALLOC_NAME":     a.Name,
		"NOMAD_GROUP_NAME":     a.TaskGroup,
		"NOMAD_TASK_NAME":      p.Task,
		"NOMAD_JOB_ID":         string(a.JobID),
		"NOMAD_JOB_NAME":       string(a.JobID),
		"NOMAD_NAMESPACE":      a.Namespace,
		"NOMAD_REGION":         p.Region,
		"NOMAD_ALLOC_DIR":      p.AllocDir,
		"NOMAD_TASK_DIR":       p.TaskDir,
		"NOMAD_SECRETS_DIR":    p.SecretsDir,
	}
	if i, ok := a.NameIndex(); ok {
		vars["NOMAD_ALLOC_INDEX"] = strconv.Itoa(i)
	}
	if p.Node != nil {
		vars["NOMAD_DC"] = p.Node.Datacenter
	}
	assignedResourceVars(vars, a.Allotment, p.Task)
	if a.Job == nil {
		return vars
	}
	vars["NOMAD_JOB_NAME"] = a.Job.Name
	for k, v := range a.Job.TaskMeta(a.TaskGroup, p.Task) {
		key := envName(k)
		vars["NOMAD_META_"+key] = v
		vars["NOMAD_META_"+strings.ToUpper(key)] = v
	}
	if g := a.Group(); g != nil {
		taskPortVars(vars, g)
		if t := g.Task(p.Task); t != nil {
			vars["NOMAD_CPU_LIMIT"] = strconv.Itoa(t.Resources.CPU)
			vars["NOMAD_MEMORY_LIMIT"] = strconv.Itoa(t.Resources.MemoryMB)
			if a.AllocatedResources.MemoryMaxMB > 0 && t.Resources.MemoryMaxMB > 0 {
				vars["NOMAD_MEMORY_MAX_LIMIT"] = strconv.Itoa(t.Resources.MemoryMaxMB)
			}
		}
	}
	return vars
}

// assignedResourceVars adds what the allocation was given: its ports by label, its cores.
func assignedResourceVars(vars map[string]string, a *fleet.AssignedResources, task string) {
	if a == nil {
		return
	}
	for _, p := range a.Ports {
		label, host, inside := envName(p.Label), strconv.Itoa(p.Value), strconv.Itoa(p.Inside())
		vars["NOMAD_IP_"+label], vars["NOMAD_HOST_IP_"+label] = p.HostIP, p.HostIP
		vars["NOMAD_PORT_"+label], vars["NOMAD_HOST_PORT_"+label] = inside, host
		vars["NOMAD_ALLOC_PORT_"+label] = inside
		vars["NOMAD_ADDR_"+label] = net.JoinHostPort(p.HostIP, inside)
		vars["NOMAD_HOST_ADDR_"+label] = net.JoinHostPort(p.HostIP, host)
	}
	if cores := a.Tasks[task].Cores; len(cores) > 0 {
		ids := make([]string, len(cores))
		for i, id := range cores {
			ids[i] = strconv.Itoa(id)
		}
		vars["NOMAD_CPU_CORES"] = strings.Join(ids, ",")
	}
}

// taskPortVars adds the ports of tasks under the names that old job files use, with the task's name.
func taskPortVars(vars map[string]string, g *fleet.TaskGroup) {
	for i := range g.Tasks {
		for _, p := range g.Tasks[i].Ports() {
			label := envName(p.Label)
			port, given := vars["NOMAD_HOST_PORT_"+label]
			if !given {
				continue
			}
			owned := envName(g.Tasks[i].Name) + "_" + label
			vars["NOMAD_IP_"+owned], vars["NOMAD_PORT_"+owned] = vars["NOMAD_HOST_IP_"+label], port
			vars["NOMAD_ADDR_"+owned] = vars["NOMAD_HOST_ADDR_"+label]
		}
	}
}

// envName makes a key fit for an environment variable.
func envName(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
}
