package fleet

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// TaskPlace is where a task runs: what its interpolation and its environment are
// made of. Alloc.Job must be set.
type TaskPlace struct {
	Alloc  *Alloc
	Node   *Node
	Task   string
	Region string
	// As the task sees them.
	AllocDir   string // NOMAD_ALLOC_DIR: shared by the group's tasks
	TaskDir    string // NOMAD_TASK_DIR: the task's own
	SecretsDir string // NOMAD_SECRETS_DIR
}

// TaskEnv is the environment of one task, and what ${…} stands for in its
// configuration. It is immutable.
type TaskEnv struct {
	vars map[string]string
	node *Node
}

// NewTaskEnv makes the environment of a task: the NOMAD_… variables, then the
// task's own env block, in which ${…} is replaced. A variable of the block may use
// NOMAD_… and what the node has, but not another variable of the block.
func NewTaskEnv(p TaskPlace) TaskEnv {
	base := TaskEnv{vars: placeVars(p), node: p.Node}
	g := p.Alloc.Group()
	if g == nil {
		return base
	}
	t := g.Task(p.Task)
	if t == nil {
		return base
	}
	vars := maps.Clone(base.vars)
	for k, v := range t.Env {
		vars[k] = base.Replace(v)
	}
	return TaskEnv{vars: vars, node: p.Node}
}

// Vars returns the environment, by name.
func (e TaskEnv) Vars() map[string]string { return maps.Clone(e.vars) }

// Environ returns the environment as sorted NAME=VALUE.
func (e TaskEnv) Environ() []string {
	list := make([]string, 0, len(e.vars))
	for _, k := range slices.Sorted(maps.Keys(e.vars)) {
		list = append(list, k+"="+e.vars[k])
	}
	return list
}

// Replace replaces every ${…} that is known: attr.…, meta.…, node.…, env.NAME,
// env["NAME"] and NAME. What is not known stays as it is, and what was put in is
// not looked at again.
func (e TaskEnv) Replace(s string) string {
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

// ReplaceAll replaces in every string of a task's Config, keys left alone, and
// returns a copy.
func (e TaskEnv) ReplaceAll(config map[string]any) map[string]any {
	if config == nil {
		return nil
	}
	return e.replaceAny(config).(map[string]any)
}

func (e TaskEnv) replaceAny(v any) any {
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

func (e TaskEnv) resolveReference(name string) (string, bool) {
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

func (e TaskEnv) lookUpVariable(name string) (string, bool) {
	v, ok := e.vars[name]
	return v, ok
}

// placeVars makes the NOMAD_… variables, without the task's own.
func placeVars(p TaskPlace) map[string]string {
	a := p.Alloc
	vars := map[string]string{
		"NOMAD_ALLOC_ID":       string(a.ID),
		"NOMAD_SHORT_ALLOC_ID": Short(a.ID),
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
func assignedResourceVars(vars map[string]string, a *AssignedResources, task string) {
	if a == nil {
		return
	}
	for _, p := range a.Ports {
		label, host := envName(p.Label), strconv.Itoa(p.Value)
		inside := host
		if p.To > 0 {
			inside = strconv.Itoa(p.To)
		}
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

// envName makes a key fit for an environment variable.
func envName(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
}

// NameIndex returns the index at the end of the allocation's name.
func (a *Alloc) NameIndex() (int, bool) {
	open := strings.LastIndexByte(a.Name, '[')
	if open < 0 || !strings.HasSuffix(a.Name, "]") {
		return 0, false
	}
	i, err := strconv.Atoi(a.Name[open+1 : len(a.Name)-1])
	return i, err == nil && i >= 0
}

// TaskMeta returns what a task is given as meta: the task's own over its group's
// over the job's.
func (j *Job) TaskMeta(group, task string) map[string]string {
	meta := maps.Clone(j.Meta)
	if meta == nil {
		meta = map[string]string{}
	}
	g := j.Group(group)
	if g == nil {
		return meta
	}
	maps.Copy(meta, g.Meta)
	if t := g.Task(task); t != nil {
		maps.Copy(meta, t.Meta)
	}
	return meta
}
