package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"skerry/fleet/validate"
)

// unsupportedExamples says, for each field that may be refused, a value in JSON that asks for it.
var unsupportedExamples = map[string]string{
	"Type=system": `"system"`, "Type=sysbatch": `"sysbatch"`,
	"ConsulNamespace": `"x"`, "VaultNamespace": `"x"`,
	"Affinities": `[{"LTarget": "${attr.x}", "RTarget": "1"}]`, "Spreads": `[{"Attribute": "${node.datacenter}"}]`,
	"Multiregion": `{"Regions": [{"Name": "x"}]}`, "Periodic": `{"Spec": "@daily"}`, "ParameterizedJob": `{}`,
	"Migrate":  `{"MaxParallel": 2}`,
	"Networks": `[{}]`, "Volumes.Type": `"csi"`, "Volumes.MountOptions": `{"FSType": "ext4"}`, "SELinuxLabel": `"Z"`,
	"Consul": `{"Namespace": "x"}`, "Consul.Cluster": `"x"`, "Consul.Namespace": `"x"`, "Consul.Partition": `"x"`, "ShutdownDelay": `1`,
	"Sticky":    `true`,
	"Artifacts": `[{}]`, "Vault.Cluster": `"x"`, "Vault.Policies": `["x"]`, "Templates": `[{}]`,
	"DispatchPayload": `{"File": "x"}`, "CSIPluginConfig": `{"ID": "x"}`, "Kind": `"x"`,
	"ScalingPolicies": `[{}]`, "Secrets.Env": `{"A": "b"}`, "Identity.Env": `true`, "ServiceName": `"x"`, "ExtraClaims": `["x"]`,
	"Schedule": `{"Cron": {"Start": "x"}}`, "Cores": `1`, "MemoryMaxMB": `1`, "Devices": `[{}]`, "NUMA": `{"Affinity": "require"}`,
	"Mode": `"${meta.network}"`, "Hostname": `"h"`, "DNS": `{"Servers": ["192.0.2.1"]}`, "CNI": `{"Args": {"k": "v"}}`,
	"AddressMode": `"driver"`, "Services.Connect": `{"SidecarService": {}}`, "Services.Kind": `"x"`, "Services.Cluster": `"x"`,
	"Identity.File": `true`, "Filepath": `"x"`, "ChangeMode": `"restart"`, "ChangeSignal": `"SIGHUP"`, "TaggedAddresses": `{"x": "y"}`, "Weights": `{"Passing": 2}`, "EnableTagOverride": `true`,
	"Expose": `true`, "Advertise": `"x"`,
	"FailOnError": `true`,
}

// TestUnsupported asks for everything that the table refuses, one by one: each must be
// a problem by its name, at its place, and no other. What Nomad's client sends without
// being asked must pass.
func TestUnsupported(t *testing.T) {
	for name, paths := range validate.UnsupportedParts() {
		for _, path := range paths {
			src, at := jobAsking(t, path)
			job, problems := validate.DecodeJob([]byte(src))
			if len(problems) > 0 {
				t.Errorf("%s: %v", src, problems)
				continue
			}
			refused := validate.Unsupported(job)
			if len(refused) != 1 || refused[0].Hint == "" || refused[0].Path != at || !strings.Contains(refused[0].Message, name) {
				t.Errorf("%s: %v, want %s at %s", src, refused.Lines(), name, at)
			}
		}
	}
	for _, src := range []string{
		`{"ConsulNamespace": "default", "TaskGroups": [{"Consul": {"Namespace": "default"}, "Update": {"MaxParallel": 1}, "Migrate": {}}]}`,
		`{"Type": "batch", "TaskGroups": [{"Update": {}, "Migrate": {}, "ShutdownDelay": 0}]}`,
		`{"TaskGroups": [{"Update": {"MaxParallel": 0}, "Networks": [], "Tasks": [{"Services": null, "Resources": {"Cores": 0}}]}]}`,
		`{"TaskGroups": [{"Services": [{"Provider": "nomad", "Name": "a", "PortLabel": "80", "AddressMode": "host", "Tags": ["t"], "CanaryTags": ["c"],
			"Meta": {"k": "v"}, "CanaryMeta": {"k": "w"}, "Address": "192.0.2.7", "OnUpdate": "ignore", "CheckRestart": {"Limit": 3},
			"Checks": [{"Name": "c", "Type": "http", "Path": "/", "Method": "POST", "Body": "b", "Header": {"h": ["v"]}, "Protocol": "https", "PortLabel": "81",
				"TLSServerName": "x", "TLSSkipVerify": true, "Interval": 1000000000, "Timeout": 1000000000, "OnUpdate": "ignore_warnings", "TaskName": "t",
				"CheckRestart": {"Limit": 1, "Grace": 1, "IgnoreWarnings": true}, "Notes": "n"}]}],
			"Tasks": [{"Services": [{"Provider": "nomad"}]}]}]}`,
		`{"TaskGroups": [{"Networks": [{"Mode": "bridge"}], "Services": [{"Provider": "nomad", "AddressMode": "alloc", "Checks": [{"Type": "tcp", "AddressMode": "alloc"}]}]}]}`,
		`{"TaskGroups": [{"Tasks": [{"Driver": "docker", "Services": [{"Provider": "nomad", "AddressMode": "driver", "Checks": [{"Type": "tcp", "AddressMode": "driver"}]}]}]}]}`,
		`{"TaskGroups": [{"Services": [{"Provider": "consul", "Cluster": "default", "TaggedAddresses": {"lan": "192.0.2.7:80"}, "Weights": {"Passing": 2}, "EnableTagOverride": true}],
			"Tasks": [{"Services": [{"PortLabel": "80"}]}]}]}`,
	} {
		job, problems := validate.DecodeJob([]byte(src))
		if problems = append(problems, validate.Unsupported(job)...); len(problems) > 0 {
			t.Errorf("%s: %v", src, problems.Lines())
		}
	}
}

// jobAsking returns a job that uses the field of a path, and where.
func jobAsking(tb testing.TB, path string) (src, at string) {
	tb.Helper()
	keys := strings.Split(path, ".")
	last := keys[len(keys)-1]
	value, ok := unsupportedExamples[last]
	if len(keys) > 1 && unsupportedExamples[keys[len(keys)-2]+"."+last] != "" {
		value, ok = unsupportedExamples[keys[len(keys)-2]+"."+last], true
	}
	if !ok {
		tb.Fatalf("no value for %s", path)
	}
	name, _, _ := strings.Cut(last, "=")
	src, at = fmt.Sprintf("{%q: %s}", name, value), name
	beside := map[string]string{"Services": `"Provider": "nomad"`, "Checks": `"Type": "tcp"`, "Templates": `"DestPath": "x"`, "Secrets": `"Name": "x"`}
	for i := len(keys) - 2; i >= 0; i-- {
		if also := beside[keys[i]]; also != "" && !strings.HasPrefix(src, strings.SplitAfter("{"+also, ":")[0]) {
			src = "{" + also + ", " + src[1:]
		}
		if keys[i] == "Volumes" {
			src, at = fmt.Sprintf(`{"Volumes": {"v": %s}}`, src), "Volumes.v."+at
		} else if keys[i] == "TaskGroups" || keys[i] == "Tasks" || keys[i] == "VolumeMounts" || keys[i] == "Identities" || beside[keys[i]] != "" || keys[i] == "Networks" && keys[0] == "TaskGroups" {
			src, at = fmt.Sprintf("{%q: [%s]}", keys[i], src), keys[i]+"[0]."+at
		} else {
			src, at = fmt.Sprintf("{%q: %s}", keys[i], src), keys[i]+"."+at
		}
	}
	if strings.Contains(last, "Periodic") || strings.Contains(last, "Parameterized") {
		src = strings.Replace(src, "{", `{"Type": "batch", `, 1)
	}
	return src, at
}

// TestAddressModesThatAGroupCanHave: alloc needs a network of the group's own, driver a task of a driver with networks
// in a group that has none.
func TestAddressModesThatAGroupCanHave(t *testing.T) {
	for _, tc := range []struct {
		mode, network, driver string
		ofGroup               bool
		ok                    bool
	}{
		{"alloc", "bridge", "raw_exec", true, true}, {"alloc", "cni/lan", "raw_exec", false, true}, {"alloc", "host", "docker", false, false},
		{"alloc", "none", "raw_exec", true, false}, {"driver", "host", "docker", false, true}, {"driver", "host", "podman", false, true},
		{"driver", "host", "raw_exec", false, false}, {"driver", "bridge", "docker", false, false}, {"driver", "host", "docker", true, false},
		{"alloc_ipv6", "bridge", "docker", false, false},
	} {
		services := fmt.Sprintf(`"Services": [{"Provider": "nomad", "AddressMode": %q, "Checks": [{"Type": "tcp", "AddressMode": %q}]}]`, tc.mode, tc.mode)
		group, task := services, `"Meta": {}`
		if !tc.ofGroup {
			group, task = task, services
		}
		src := fmt.Sprintf(`{"TaskGroups": [{"Networks": [{"Mode": %q}], %s, "Tasks": [{"Driver": %q, %s}]}]}`, tc.network, group, tc.driver, task)
		job, problems := validate.DecodeJob([]byte(src))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", src, problems.Lines())
		}
		refused := validate.Unsupported(job)
		if want := map[bool]int{true: 0, false: 2}[tc.ok]; len(refused) != want {
			t.Errorf("%+v: %v", tc, refused.Lines())
		}
	}
}
