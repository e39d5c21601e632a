package jobspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// finishNetwork takes the ports that are asked for by number out of the others.
func finishNetwork(p *parser, m map[string]any, path string) {
	ports, _ := m["DynamicPorts"].([]any)
	var fixed, dynamic []any
	moved := map[string]hcl.Range{}
	for i, port := range ports {
		from, key, list := fmt.Sprintf("%s.DynamicPorts[%d]", path, i), "DynamicPorts", &dynamic
		if n, ok := port.(map[string]any)["Value"].(json.Number); ok && n != "0" {
			key, list = "ReservedPorts", &fixed
		}
		p.movePositions(from, fmt.Sprintf("%s.%s[%d]", path, key, len(*list)), moved)
		*list = append(*list, port)
	}
	maps.Copy(p.positions, moved)
	for key, list := range map[string][]any{"DynamicPorts": dynamic, "ReservedPorts": fixed} {
		delete(m, key)
		if len(list) > 0 {
			m[key] = list
		}
	}
}

// movePositions moves the positions below a path into a map, below another path.
func (p *parser) movePositions(from, to string, into map[string]hcl.Range) {
	for path, r := range p.positions {
		if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			into[to+rest] = r
			delete(p.positions, path)
		}
	}
}

// finishWait turns the words of a template's wait, which may be written as a map, into
// the JSON's.
func finishWait(_ *parser, m map[string]any, _ string) {
	for word, key := range map[string]string{"min": "Min", "max": "Max"} {
		if v, ok := m[word]; ok {
			m[key] = v
			delete(m, word)
		}
	}
}

// finishTask tells the default identity from the others, and refuses two scaling
// blocks for the same thing.
func finishTask(p *parser, m map[string]any, path string) {
	scaling, _ := m["ScalingPolicies"].([]any)
	seen := map[any]bool{}
	for i, s := range scaling {
		kind := s.(map[string]any)["Type"]
		if seen[kind] {
			at := joinPath(path, fmt.Sprintf("ScalingPolicies[%d]", i))
			p.addDiagnosticAt(p.positions[at], fmt.Sprintf("a task has one scaling block of type %v", kind), "")
		}
		seen[kind] = true
	}
	identities, _ := m["Identities"].([]any)
	rest := identities[:0:0]
	for _, e := range identities {
		identity, _ := e.(map[string]any)
		if name, _ := identity["Name"].(string); (name == "" || name == "default") && m["Identity"] == nil {
			identity["Name"] = "default"
			m["Identity"] = identity
			continue
		}
		rest = append(rest, e)
	}
	delete(m, "Identities")
	if len(rest) > 0 {
		m["Identities"] = rest
	}
}

// verticals are the labels of a task's scaling blocks.
var verticals = map[string]string{"cpu": "vertical_cpu", "mem": "vertical_mem"}

func finishTaskScaling(p *parser, m map[string]any, path string) {
	label, _ := m["Type"].(string)
	if kind, ok := verticals[label]; ok {
		m["Type"] = kind
		return
	}
	p.addDiagnosticAt(p.positions[path], fmt.Sprintf("a task's scaling block is named cpu or mem, not %q", label), "")
}

// finishJob copies the blocks of the job that its groups and tasks inherit.
func finishJob(p *parser, m map[string]any, path string) {
	groups, _ := m["TaskGroups"].([]any)
	for i, g := range groups {
		at := joinPath(path, fmt.Sprintf("TaskGroups[%d]", i))
		p.inheritBlock(m, g.(map[string]any), path, at, "Consul")
		p.inheritInTasks(m, g.(map[string]any), path, at)
	}
	delete(m, "Vault")
	delete(m, "Consul")
	delete(m, "Secrets")
}

// finishGroup hands a group's vault and secret blocks down to its tasks.
func finishGroup(p *parser, m map[string]any, path string) {
	p.inheritInTasks(m, m, path, path)
	delete(m, "Vault")
	delete(m, "Secrets")
}

// inheritInTasks gives a vault block to the tasks of a group that have none, and secret blocks to those without one of that name.
func (p *parser) inheritInTasks(from, group map[string]any, fromPath, groupPath string) {
	tasks, _ := group["Tasks"].([]any)
	for i, t := range tasks {
		task, at := t.(map[string]any), joinPath(groupPath, fmt.Sprintf("Tasks[%d]", i))
		p.inheritBlock(from, task, fromPath, at, "Vault")
		p.inheritSecrets(from, task, fromPath, at)
	}
}

// inheritSecrets copies secret blocks to a task that has none of that name.
func (p *parser) inheritSecrets(from, task map[string]any, fromPath, taskPath string) {
	secrets, _ := from["Secrets"].([]any)
	own, _ := task["Secrets"].([]any)
	all := slices.Clip(own)
	for i, s := range secrets {
		secret, _ := s.(map[string]any)
		if slices.ContainsFunc(own, func(o any) bool { return o.(map[string]any)["Name"] == secret["Name"] }) {
			continue
		}
		p.copyPositions(joinPath(fromPath, fmt.Sprintf("Secrets[%d]", i)), joinPath(taskPath, fmt.Sprintf("Secrets[%d]", len(all))))
		all = append(all, maps.Clone(secret))
		task["Secrets"] = all
	}
}

// inheritBlock copies a block to a place that has none of its own.
func (p *parser) inheritBlock(from, to map[string]any, fromPath, toPath, key string) {
	block, ok := from[key].(map[string]any)
	if _, own := to[key]; !ok || own {
		return
	}
	to[key] = maps.Clone(block)
	p.copyPositions(joinPath(fromPath, key), joinPath(toPath, key))
}

// copyPositions gives a copy of a block the positions of the block.
func (p *parser) copyPositions(fromBlock, toBlock string) {
	copied := map[string]hcl.Range{}
	for path, at := range p.positions {
		if rest, below := strings.CutPrefix(path, fromBlock); below && (rest == "" || rest[0] == '.') {
			copied[toBlock+rest] = at
		}
	}
	for path, at := range copied {
		p.recordPosition(path, at)
	}
}
