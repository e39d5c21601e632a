package fleet

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// unsupported are the parts of a job that are read and checked and that nothing acts on
// yet: a job that asks for one of them is refused when it is registered, by its name.
// One line a block; who makes one work deletes its line.
var unsupported = []struct {
	name  string
	paths []string // of fields, without indexes
}{
	{"migrate of ephemeral_disk", []string{"TaskGroups.EphemeralDisk.Migrate"}},
	{"network block of a task", []string{"TaskGroups.Tasks.Resources.Networks"}},
	{"network mode other than host", []string{"TaskGroups.Networks.Mode"}},
	{"dns block", []string{"TaskGroups.Networks.DNS"}},
	{"cni block", []string{"TaskGroups.Networks.CNI"}},
	{"hostname of a network", []string{"TaskGroups.Networks.Hostname"}},
	{"numa block", []string{"TaskGroups.Tasks.Resources.NUMA"}},
	{"secrets memory", []string{"TaskGroups.Tasks.Resources.SecretsMB"}},
	{"multiregion block", []string{"Multiregion"}},
	{"provider consul of a service (write provider = \"nomad\")", ofServices("Provider")},
	{"address_mode other than auto and host", ofServices("AddressMode", "Checks.AddressMode")},
	{"connect block", ofServices("Connect")},
	{"identity block of a service", ofServices("Identity")},
	{"kind of a service", ofServices("Kind")},
	{"tagged_addresses", ofServices("TaggedAddresses")},
	{"weights block", ofServices("Weights")},
	{"enable_tag_override", ofServices("EnableTagOverride")},
	{"type of a check other than http and tcp", ofServices("Checks.Type")},
	{"command of a check", ofServices("Checks.Command", "Checks.Args")},
	{"expose", ofServices("Checks.Expose")},
	{"advertise of a check", ofServices("Checks.Advertise")},
	{"initial_status", ofServices("Checks.InitialStatus")},
	{"grpc_service", ofServices("Checks.GRPCService")},
	{"grpc_use_tls", ofServices("Checks.GRPCUseTLS")},
	{"success_before_passing", ofServices("Checks.SuccessBeforePassing")},
	{"failures_before_critical", ofServices("Checks.FailuresBeforeCritical")},
	{"failures_before_warning", ofServices("Checks.FailuresBeforeWarning")},
	{"volume block", []string{"TaskGroups.Volumes"}},
	{"volume_mount block", []string{"TaskGroups.Tasks.VolumeMounts"}},
	{"csi_plugin block", []string{"TaskGroups.Tasks.CSIPluginConfig"}},
	{"user", []string{"TaskGroups.Tasks.User"}},
	{"artifact block", []string{"TaskGroups.Tasks.Artifacts"}},
	{"template block", []string{"TaskGroups.Tasks.Templates"}},
	{"vault block", []string{"TaskGroups.Tasks.Vault"}},
	{"consul block", []string{"TaskGroups.Consul", "TaskGroups.Tasks.Consul"}},
	{"secret block", []string{"TaskGroups.Tasks.Secrets"}},
	{"identity block", []string{"TaskGroups.Tasks.Identity", "TaskGroups.Tasks.Identities"}},
	{"action block", []string{"TaskGroups.Tasks.Actions"}},
	{"schedule block", []string{"TaskGroups.Tasks.Schedule"}},
	{"kind", []string{"TaskGroups.Tasks.Kind"}},
	{"disabled logs", []string{"TaskGroups.Tasks.LogConfig.Disabled"}},
	{"render_templates", []string{"TaskGroups.RestartPolicy.RenderTemplates", "TaskGroups.Tasks.RestartPolicy.RenderTemplates"}},
	{"a Consul namespace", []string{"ConsulNamespace"}},
	{"a Vault namespace", []string{"VaultNamespace"}},
}

// ofServices are the paths of fields of a group's services and of a task's.
func ofServices(fields ...string) []string {
	var paths []string
	for _, f := range fields {
		paths = append(paths, "TaskGroups.Services."+f, "TaskGroups.Tasks.Services."+f)
	}
	return paths
}

// Unsupported returns what of a job nothing acts on yet. A job that says no more than
// what holds anyway (the defaults that Nomad's client sends without being asked) is
// fine.
func (j *Job) Unsupported() Problems {
	var ps Problems
	refuse := map[string]string{}
	for _, u := range unsupported {
		for _, path := range u.paths {
			refuse[path] = u.name
		}
	}
	if name, ok := refuse["Type="+j.Type]; ok {
		ps.add("Type", "%s are not supported yet", name)
	}
	walkUsed(reflect.ValueOf(j.plainly()), "", "", func(field, path string) bool {
		name, ok := refuse[field]
		if ok {
			ps.add(path, "%s is not supported yet", name)
		}
		return ok
	})
	return ps
}

// plainly returns a copy of the job without what says only what holds anyway.
func (j *Job) plainly() Job {
	c := *j
	c.ConsulNamespace = strings.TrimPrefix(c.ConsulNamespace, DefaultNamespace)
	c.VaultNamespace = strings.TrimPrefix(c.VaultNamespace, DefaultNamespace)
	c.TaskGroups = slices.Clone(j.TaskGroups)
	for i := range c.TaskGroups {
		g := &c.TaskGroups[i]
		if m := DefaultMigrate(j.Type); g.Migrate != nil && m != nil && *m == *g.Migrate {
			g.Migrate = nil
		}
		g.Networks = slices.Clone(g.Networks)
		for k := range g.Networks {
			if g.Networks[k].Mode == NetworkHost {
				g.Networks[k].Mode = ""
			}
		}
		usual := Consul{Cluster: DefaultCluster}
		if g.Consul != nil && (*g.Consul == usual || *g.Consul == Consul{Cluster: DefaultCluster, Namespace: DefaultNamespace}) {
			g.Consul = nil
		}
		g.Services = plainServices(g.Services)
		g.Tasks = slices.Clone(g.Tasks)
		for k := range g.Tasks {
			g.Tasks[k].Services = plainServices(g.Tasks[k].Services)
		}
	}
	return c
}

// plainServices returns services without what of their fields is supported in some
// values and not in others, where it has a value that is.
func plainServices(list []Service) []Service {
	list = slices.Clone(list)
	blank := func(field *string, supported ...string) {
		if slices.Contains(supported, *field) {
			*field = ""
		}
	}
	for i := range list {
		s := &list[i]
		blank(&s.Provider, ProviderNomad)
		blank(&s.AddressMode, AddressAuto, AddressHost)
		s.Checks = slices.Clone(s.Checks)
		for k := range s.Checks {
			blank(&s.Checks[k].Type, CheckHTTP, CheckTCP)
			blank(&s.Checks[k].AddressMode, AddressAuto, AddressHost)
		}
	}
	return list
}

// walkUsed calls visit for every field that is not zero: with its path without
// indexes, and with them. Where visit returns true it goes no deeper.
func walkUsed(v reflect.Value, field, path string, visit func(field, path string) bool) {
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
	case reflect.Struct:
		for i := range v.NumField() {
			f, fv := v.Type().Field(i), v.Field(i)
			if f.Anonymous {
				walkUsed(fv, field, path, visit)
				continue
			}
			if !fv.IsZero() && !isNothing(fv) && !visit(joinPath(field, f.Name), joinPath(path, f.Name)) {
				walkUsed(fv, joinPath(field, f.Name), joinPath(path, f.Name), visit)
			}
		}
	}
}

// isNothing reports whether v is a list or a map that holds nothing.
func isNothing(v reflect.Value) bool {
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}
