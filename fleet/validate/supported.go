package validate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"skerry/fleet"
	"skerry/internal/sorting"
)

// unsupported are the parts of a job that are read and checked and that nothing acts on
// yet: a job that asks for one of them is refused when it is registered, by its name.
// One line a block, with what to write instead; who makes one work deletes its line.
var unsupported = []struct {
	name  string
	hint  string
	paths []string // of fields, without indexes
}{
	{"mode of a network block of a task", "write it in the group's network block: the tasks of a group have one network", []string{"TaskGroups.Tasks.Resources.Networks.Mode"}},
	{"hostname of a network block of a task", "write it in the group's network block", []string{"TaskGroups.Tasks.Resources.Networks.Hostname"}},
	{"dns in a network block of a task", "write it in the group's network block", []string{"TaskGroups.Tasks.Resources.Networks.DNS"}},
	{"cni in a network block of a task", "write it in the group's network block", []string{"TaskGroups.Tasks.Resources.Networks.CNI"}},
	{"${…} in the mode of a network", "write the mode itself: the edge is chosen by it", []string{"TaskGroups.Networks.Mode"}},
	{"numa block", "leave it out; cores reserves whole cores", []string{"TaskGroups.Tasks.Resources.NUMA"}},
	{"multiregion block", "run the job in each cluster: one cluster is one region", []string{"Multiregion"}},
	{"this address_mode", "write address_mode = \"host\", or leave it out; alloc needs a group with a network of mode bridge or cni/NAME, driver a service of a docker or podman task in a group without one", ofServices("AddressMode", "Checks.AddressMode")},
	{"connect block", "leave it out: there is no service mesh", ofServices("Connect")},
	{"env of an identity of a service", nobodyGetsIt, ofServices("Identity.Env")},
	{"file of an identity of a service", nobodyGetsIt, ofServices("Identity.File")},
	{"filepath of an identity of a service", nobodyGetsIt, ofServices("Identity.Filepath")},
	{"change_mode of an identity of a service", nobodyGetsIt, ofServices("Identity.ChangeMode")},
	{"change_signal of an identity of a service", nobodyGetsIt, ofServices("Identity.ChangeSignal")},
	{"service_name of an identity of a service", "leave it out: it is the name of the service", ofServices("Identity.ServiceName")},
	{"extra_claims of an identity of a service", "leave them out: a token has Nomad's own claims", ofServices("Identity.ExtraClaims")},
	{"cluster of a service", "leave it out: a node has one Consul agent", ofServices("Cluster")},
	{"kind of a service", "leave it out: it belongs to a service mesh", ofServices("Kind")},
	{"tagged_addresses", "leave it out, and write another service for each further address; provider = \"consul\" has them", ofServices("TaggedAddresses")},
	{"weights block", "leave it out: clients of a service weight its instances themselves; provider = \"consul\" has them", ofServices("Weights")},
	{"enable_tag_override", "leave it out: tags are those of the job; provider = \"consul\" has it", ofServices("EnableTagOverride")},
	{"expose", "leave it out: it belongs to a service mesh", ofServices("Checks.Expose")},
	{"advertise of a check", "leave it out: a check goes to the address of its service", ofServices("Checks.Advertise")},
	{"volume of a type other than host", "write type = \"host\", and offer the folder on the edges with --host-volume", []string{"TaskGroups.Volumes.Type"}},
	{"mount_options of a volume", "leave them out: a host volume is a folder of the edge, which is mounted already", []string{"TaskGroups.Volumes.MountOptions"}},
	{"sticky of a volume", "leave it out, and use per_alloc = true with a volume for each allocation", []string{"TaskGroups.Volumes.Sticky"}},
	{"selinux_label of a volume_mount", "leave it out, and label the volume's folder on the edge", []string{"TaskGroups.Tasks.VolumeMounts.SELinuxLabel"}},
	{"csi_plugin block", "leave it out: there are no storage plugins", []string{"TaskGroups.Tasks.CSIPluginConfig"}},
	{"fail_on_error of a change_script", "leave it out: an event says that the script failed, and the task runs on", []string{"TaskGroups.Tasks.Templates.ChangeScript.FailOnError"}},
	{"cluster of a vault block", "leave it out: an edge has one Vault", []string{"TaskGroups.Tasks.Vault.Cluster"}},
	{"policies of a vault block", "write role: the edge logs in with the identity of the task, and that role of Vault decides on the policies", []string{"TaskGroups.Tasks.Vault.Policies"}},
	{"this consul block of a group", "leave it out, and write one into the tasks that log in: a node has one Consul agent, in the default namespace and partition", []string{"TaskGroups.Consul"}},
	{"cluster of a consul block", "leave it out: a node has one Consul agent", []string{"TaskGroups.Tasks.Consul.Cluster"}},
	{"namespace of a consul block", "leave it out: namespaces are a part of Consul Enterprise", []string{"TaskGroups.Tasks.Consul.Namespace"}},
	{"partition of a consul block", "leave it out: admin partitions are a part of Consul Enterprise", []string{"TaskGroups.Tasks.Consul.Partition"}},
	{"env of a secret", "leave it out: it is for plugins, and the providers here are nomad and vault", []string{"TaskGroups.Tasks.Secrets.Env"}},
	{"service_name of an identity", "write an identity block into the service", ofIdentities("ServiceName")},
	{"extra_claims of an identity", "leave them out: a token has Nomad's own claims", ofIdentities("ExtraClaims")},
	{"schedule block", "leave it out; a periodic batch job runs at fixed times", []string{"TaskGroups.Tasks.Schedule"}},
	{"kind", "leave it out: it belongs to a service mesh", []string{"TaskGroups.Tasks.Kind"}},
	{"a Consul namespace", "leave it out: services are in the namespace of the node's token", []string{"ConsulNamespace"}},
	{"a Vault namespace", "write namespace in the vault block", []string{"VaultNamespace"}},
}

const nobodyGetsIt = "leave it out: the edge logs in to Consul with the identity, and gives its token to nobody"

// ofServices are the paths of fields of a group's services and of a task's.
func ofServices(fields ...string) []string {
	var paths []string
	for _, f := range fields {
		paths = append(paths, "TaskGroups.Services."+f, "TaskGroups.Tasks.Services."+f)
	}
	return paths
}

// ofIdentities are the paths of a field of a task's identities.
func ofIdentities(field string) []string {
	return []string{"TaskGroups.Tasks.Identity." + field, "TaskGroups.Tasks.Identities." + field}
}

// unsupportedFields returns the index in unsupported of each field that is refused.
var unsupportedFields = sync.OnceValue(func() map[string]int {
	refuse := map[string]int{}
	for i, u := range unsupported {
		for _, path := range u.paths {
			refuse[path] = i
		}
	}
	return refuse
})

// Unsupported returns the parts of a job that nothing acts on yet. Defaults that Nomad's client
// sends without being asked are no such parts.
func Unsupported(j *fleet.Job) fleet.Problems {
	var ps fleet.Problems
	refuse := unsupportedFields()
	walkUsed(reflect.ValueOf(withoutDefaults(j)), "", "", func(field, path string, v reflect.Value) bool {
		i, ok := refuse[field]
		if ok {
			ps.AddHint(path, unsupported[i].hint, "%s is not supported yet", unsupported[i].name)
		}
		refuseSecretReferences(v, &ps, field, path)
		return ok
	})
	refuseSecrets(j, &ps)
	refuseTemplateFunctions(j, &ps)
	refuseDriverLimits(j, &ps)
	refuseTaskPorts(j, &ps)
	return ps
}

// refuseTemplateFunctions refuses templates with functions that do not work here.
func refuseTemplateFunctions(j *fleet.Job, ps *fleet.Problems) {
	for g := range j.TaskGroups {
		for t := range j.TaskGroups[g].Tasks {
			task := &j.TaskGroups[g].Tasks[t]
			for i := range task.Templates {
				if e := checkTemplate(&task.Templates[i]); e != nil && e.Code == fleet.CodeUnsupported {
					ps.AddHint(fmt.Sprintf("TaskGroups[%d].Tasks[%d].Templates[%d].EmbeddedTmpl", g, t, i), e.Hint, "%s", e.Message)
				}
			}
		}
	}
}

// withoutDefaults returns a copy of the job without what says only what holds anyway.
func withoutDefaults(j *fleet.Job) fleet.Job {
	c := *j
	c.ConsulNamespace = strings.TrimPrefix(c.ConsulNamespace, fleet.DefaultNamespace)
	c.VaultNamespace = strings.TrimPrefix(c.VaultNamespace, fleet.DefaultNamespace)
	c.TaskGroups = slices.Clone(j.TaskGroups)
	for i := range c.TaskGroups {
		g := &c.TaskGroups[i]
		if m := fleet.DefaultMigrate(j.Type); g.Migrate != nil && m != nil && *m == *g.Migrate {
			g.Migrate = nil
		}
		g.Networks = slices.Clone(g.Networks)
		for k := range g.Networks {
			if !strings.Contains(g.Networks[k].Mode, "${") {
				g.Networks[k].Mode = ""
			}
		}
		g.Volumes = maps.Clone(g.Volumes)
		for name, v := range g.Volumes {
			v.Type = strings.TrimPrefix(v.Type, fleet.VolumeHost)
			g.Volumes[name] = v
		}
		if g.Consul != nil && *withoutUsual(g.Consul) == (fleet.Consul{}) {
			g.Consul = nil // Nomad's client sends one
		}
		g.Services = plainServices(g.Services, addressModes(&j.TaskGroups[i], nil))
		g.Tasks = slices.Clone(g.Tasks)
		for k := range g.Tasks {
			t := &g.Tasks[k]
			t.Services = plainServices(t.Services, addressModes(&j.TaskGroups[i], t))
			t.Resources.Networks = slices.Clone(t.Resources.Networks)
			for n := range t.Resources.Networks {
				t.Resources.Networks[n].Mode = strings.TrimPrefix(t.Resources.Networks[n].Mode, fleet.NetworkHost)
			}
			if t.Vault != nil && t.Vault.Cluster == fleet.DefaultCluster {
				block := *t.Vault
				block.Cluster = ""
				t.Vault = &block
			}
			if t.Consul != nil {
				t.Consul = withoutUsual(t.Consul)
			}
			if g.RestartPolicy != nil && t.RestartPolicy != nil && *t.RestartPolicy == *g.RestartPolicy {
				t.RestartPolicy = nil // of which its group tells
			}
		}
	}
	return c
}

// withoutUsual returns a copy of a consul block without what holds anyway.
func withoutUsual(c *fleet.Consul) *fleet.Consul {
	block := *c
	for _, field := range []*string{&block.Cluster, &block.Namespace, &block.Partition} {
		*field = strings.TrimPrefix(*field, fleet.DefaultCluster)
	}
	return &block
}

// addressModes returns the address modes that services of a group, or of a task of it, can have.
func addressModes(g *fleet.TaskGroup, t *fleet.Task) []string {
	modes := []string{fleet.AddressAuto, fleet.AddressHost}
	switch {
	case g.HasOwnAddress():
		modes = append(modes, fleet.AddressAlloc)
	case t != nil && driverAbilities[t.Driver].Address && g.NetworkMode() == fleet.NetworkHost:
		modes = append(modes, fleet.AddressDriver)
	}
	return modes
}

// plainServices returns services without those of their fields that are supported in some values, or with some
// providers, and not in others, where they have a value that is. modes are the address modes that they can have.
func plainServices(list []fleet.Service, modes []string) []fleet.Service {
	list = slices.Clone(list)
	blank := func(field *string, supported ...string) {
		if slices.Contains(supported, *field) {
			*field = ""
		}
	}
	for i := range list {
		s := &list[i]
		blank(&s.Cluster, fleet.DefaultCluster)
		if s.Provider == fleet.ProviderConsul {
			s.TaggedAddresses, s.Weights, s.EnableTagOverride = nil, nil, false
		}
		blank(&s.AddressMode, modes...)
		s.Checks = slices.Clone(s.Checks)
		for k := range s.Checks {
			blank(&s.Checks[k].AddressMode, modes...)
		}
	}
	return list
}

// walkUsed calls visit for every field that is not zero: with its path without
// indexes, and with them. Where visit returns true it goes no deeper.
func walkUsed(v reflect.Value, field, path string, visit func(field, path string, v reflect.Value) bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walkUsed(v.Elem(), field, path, visit)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		for i := range v.Len() {
			walkUsed(v.Index(i), field, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		keys := v.MapKeys()
		sorting.Slice(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, key := range keys {
			walkUsed(v.MapIndex(key), field, joinPath(path, key.String()), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f, fv := v.Type().Field(i), v.Field(i)
			if f.Anonymous {
				walkUsed(fv, field, path, visit)
				continue
			}
			if !fv.IsZero() && !isEmptyValue(fv) && !visit(joinPath(field, f.Name), joinPath(path, f.Name), fv) {
				walkUsed(fv, joinPath(field, f.Name), joinPath(path, f.Name), visit)
			}
		}
	}
}

// isEmptyValue reports whether v is a list or a map that holds nothing.
func isEmptyValue(v reflect.Value) bool {
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}
