package validate

import (
	"fmt"
	"slices"
	"strings"

	"skerry/fleet"
)

// DriverWarnings returns a line for each driver of a job that is not in known, or that no node has. Such a job
// is registered, and its allocations wait for a node with the driver. has reports whether a node has a driver;
// nil: the nodes are not known.
func DriverWarnings(j *fleet.Job, known []string, has func(driver string) bool) []string {
	var out []string
	seen := map[string]bool{"": true}
	for i := range j.TaskGroups {
		for k := range j.TaskGroups[i].Tasks {
			d := j.TaskGroups[i].Tasks[k].Driver
			if seen[d] {
				continue
			}
			seen[d] = true
			switch {
			case !slices.Contains(known, d):
				hint := Suggest(d, known, "there are "+strings.Join(known, ", "))
				out = append(out, fmt.Sprintf("driver %q is not known (%s): its tasks wait for a node that has it", d, hint))
			case has != nil && !has(d):
				out = append(out, fmt.Sprintf("no node has a healthy driver %q: its tasks wait for one; node status NODE shows why a node does not have it", d))
			}
		}
	}
	return out
}

// ConsulWarning returns a line for a job with services that are registered with Consul, if no node has a Consul agent; ""
// for any other job.
func ConsulWarning(j *fleet.Job, hasNode func() bool) string {
	for i := range j.TaskGroups {
		if g := &j.TaskGroups[i]; g.UsesConsul() && !hasNode() {
			return fmt.Sprintf("no node has a Consul agent: group %q waits for one, because the provider of its services is consul, which is the default; "+
				"start nodes with --consul-address, or write provider = \"nomad\"", g.Name)
		}
	}
	return ""
}

// ConsulLoginWarnings returns a line for a job that logs in to Consul, if on no node it can, and one for each task whose token is in
// its environment on the disk.
func ConsulLoginWarnings(j *fleet.Job, hasNode func() bool) []string {
	var out []string
	missing := false
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		if g.LogsInToConsul() && !missing && !hasNode() {
			missing = true
			out = append(out, fmt.Sprintf("no node lets tasks log in to Consul: group %q waits for one; start nodes with --consul-address, which has to be on the node itself or https", g.Name))
		}
		for _, t := range g.Tasks {
			if t.Consul != nil && t.Consul.Env && envIsOnDisk(&t) {
				out = append(out, fmt.Sprintf("task %q: CONSUL_HTTP_TOKEN is in its environment, which this driver keeps on the edge's disk: leave out env, and let it read %s", t.Name, fleet.ConsulTokenFile))
			}
		}
	}
	return out
}

// VaultWarnings returns a line for a job with a vault block, if no node has a Vault, and one for each task whose token is in
// its environment on the disk.
func VaultWarnings(j *fleet.Job, hasNode func() bool) []string {
	var out []string
	missing := false
	for i := range j.TaskGroups {
		g := &j.TaskGroups[i]
		if g.UsesVault() && !missing && !hasNode() {
			missing = true
			out = append(out, fmt.Sprintf("no node has a Vault: group %q waits for one; start nodes with --vault-address", g.Name))
		}
		for _, t := range g.Tasks {
			if t.Vault != nil && t.Vault.Env && envIsOnDisk(&t) {
				out = append(out, fmt.Sprintf("task %q: VAULT_TOKEN is in its environment, which this driver keeps on the edge's disk: write env = false in its vault block, and let it read %s", t.Name, fleet.VaultTokenFile))
			}
		}
	}
	return out
}

// Suggest returns "did you mean …" where one of the known names is close, and else otherwise.
func Suggest(name string, known []string, otherwise string) string {
	best, least := "", 1+len(name)/3
	for _, k := range known {
		if d := distance(name, k); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	if best == "" {
		return otherwise
	}
	return "did you mean " + best + "?"
}

// distance is how many letters must be changed, added or dropped to make b of a.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
