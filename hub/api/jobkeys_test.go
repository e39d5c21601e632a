package api_test

import (
	"testing"

	nomad "github.com/hashicorp/nomad/api"
)

// TestClientReadsBlocksOfAJob registers a job with the blocks that the jobs of TestNomadKeys lack, and reads them with
// Nomad's client.
func TestClientReadsBlocksOfAJob(t *testing.T) {
	_, _, c := mustServe(t)
	ref := func(s string) *string { return &s }
	yes, secrets := true, 5
	sent := exampleJob("all")
	g := sent.TaskGroups[0]
	g.EphemeralDisk = &nomad.EphemeralDisk{Sticky: &yes, Migrate: &yes}
	g.Volumes = map[string]*nomad.VolumeRequest{"data": {Type: "host", Source: "data", AccessMode: "single-node-writer", AttachmentMode: "file-system"}}
	g.Networks = []*nomad.NetworkResource{{
		Mode: "cni/site", Hostname: "web", DNS: &nomad.DNSConfig{Servers: []string{"192.0.2.53"}}, CNI: &nomad.CNIConfig{Args: map[string]string{"vlan": "7"}},
		DynamicPorts: []nomad.Port{{Label: "http", To: 80}},
	}}
	g.Services = []*nomad.Service{{
		Name: "web", PortLabel: "http", Provider: "consul", EnableTagOverride: true, TaggedAddresses: map[string]string{"wan": "192.0.2.1"},
		Weights: &nomad.ServiceWeights{Passing: 3, Warning: 1}, Identity: &nomad.WorkloadIdentity{Audience: []string{"consul.io"}},
	}}
	task := g.Tasks[0]
	task.Driver = "docker" // which can mount volumes and set a hostname
	task.Config = map[string]any{"image": "busybox:1"}
	task.User, task.Resources = "nobody", &nomad.Resources{SecretsMB: &secrets}
	task.Artifacts = []*nomad.TaskArtifact{{GetterSource: ref("https://files.example/a.tar.gz")}}
	task.Templates = []*nomad.Template{{EmbeddedTmpl: ref("a"), DestPath: ref("local/a")}}
	task.VolumeMounts = []*nomad.VolumeMount{{Volume: ref("data"), Destination: ref("/data")}}
	task.Identity = &nomad.WorkloadIdentity{File: true}
	task.Identities = []*nomad.WorkloadIdentity{{Name: "vault_default", Audience: []string{"vault.io"}}}
	task.Consul, task.Vault = &nomad.Consul{}, &nomad.Vault{Role: "web"}
	if _, _, err := c.Jobs().Register(sent, nil); err != nil {
		t.Fatal(err)
	}
	job, _, err := c.Jobs().Info("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	g = job.TaskGroups[0]
	network, service := g.Networks[0], g.Services[0]
	task = g.Tasks[0]
	for key, filled := range map[string]bool{
		"EphemeralDisk.Sticky":      *g.EphemeralDisk.Sticky,
		"EphemeralDisk.Migrate":     *g.EphemeralDisk.Migrate,
		"TaskGroup.Volumes":         g.Volumes["data"] != nil && g.Volumes["data"].Source == "data",
		"NetworkResource.Hostname":  network.Hostname == "web",
		"NetworkResource.DNS":       network.DNS != nil && len(network.DNS.Servers) == 1,
		"NetworkResource.CNI":       network.CNI != nil && network.CNI.Args["vlan"] == "7",
		"Service.EnableTagOverride": service.EnableTagOverride,
		"Service.TaggedAddresses":   service.TaggedAddresses["wan"] == "192.0.2.1",
		"Service.Weights":           service.Weights != nil && service.Weights.Passing == 3,
		"Service.Identity":          service.Identity != nil && len(service.Identity.Audience) == 1,
		"Task.User":                 task.User == "nobody",
		"Task.Artifacts":            len(task.Artifacts) == 1 && *task.Artifacts[0].GetterSource == "https://files.example/a.tar.gz",
		"Task.Templates":            len(task.Templates) == 1 && *task.Templates[0].EmbeddedTmpl == "a",
		"Task.VolumeMounts":         len(task.VolumeMounts) == 1 && *task.VolumeMounts[0].Destination == "/data",
		"Task.Identity":             task.Identity != nil && task.Identity.File,
		"Task.Identities":           len(task.Identities) == 1 && task.Identities[0].Name == "vault_default",
		"Task.Consul":               task.Consul != nil,
		"Task.Vault":                task.Vault != nil && task.Vault.Role == "web",
		"Resources.SecretsMB":       task.Resources.SecretsMB != nil && *task.Resources.SecretsMB == 5,
	} {
		if !filled {
			t.Errorf("%s is not filled", key)
		}
	}
}
