package api_test

import (
	nomad "github.com/hashicorp/nomad/api"
)

// storesJob mounts the volume "sales[0]", and reads the volume "archive".
const storesJob = `
job "stores" {
  group "g" {
    volume "sales" {
      type            = "host"
      source          = "sales"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      per_alloc       = true
    }
    volume "archive" {
      type            = "host"
      source          = "archive"
      access_mode     = "single-node-reader-only"
      attachment_mode = "file-system"
      read_only       = true
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["86400"]
      }
    }
  }
}`

// makeVolumes has an edge make a volume, mounts it, registers an existing folder as another one, and deletes both.
func (c *devCluster) makeVolumes() {
	c.tb.Helper()
	access := []*nomad.HostVolumeCapability{
		{AttachmentMode: nomad.HostVolumeAttachmentModeFilesystem, AccessMode: nomad.HostVolumeAccessModeSingleNodeWriter},
		{AttachmentMode: nomad.HostVolumeAttachmentModeFilesystem, AccessMode: nomad.HostVolumeAccessModeSingleNodeReader},
	}
	created, _, err := c.HostVolumes().Create(&nomad.HostVolumeCreateRequest{Volume: &nomad.HostVolume{
		Name: "sales[0]", NodePool: "default", NodeID: string(c.nodes[1]), PluginID: "mkdir", Parameters: map[string]string{"mode": "0750"}, RequestedCapabilities: access,
		RequestedCapacityMinBytes: 1 << 20, RequestedCapacityMaxBytes: 1 << 30, Constraints: []*nomad.Constraint{nomad.NewConstraint("${attr.kernel.name}", "=", "linux")},
	}}, nil)
	c.mustSucceed(err)
	registered, _, err := c.HostVolumes().Register(&nomad.HostVolumeRegisterRequest{Volume: &nomad.HostVolume{
		Name: "archive", NodeID: string(c.nodes[1]), HostPath: c.tb.TempDir(), RequestedCapabilities: access,
	}}, nil)
	c.mustSucceed(err)
	volumes := []string{created.Volume.ID, registered.Volume.ID}
	c.waitUntil("the volumes are ready", func() string {
		for _, id := range volumes {
			if v, _, err := c.HostVolumes().Get(id, nil); err != nil || v.State != nomad.HostVolumeStateReady {
				return missingOf(0, 1, err)
			}
		}
		return ""
	})
	c.registerHCL(storesJob)
	c.waitForRunningAlloc("stores")
	_, _, err = c.HostVolumes().Get(volumes[0], nil)
	c.mustSucceed(err)
	_, _, err = c.HostVolumes().List(nil, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Deregister("stores", false, nil)
	c.mustSucceed(err)
	c.waitUntil("no allocation uses the volume", func() string {
		_, _, err := c.HostVolumes().Delete(&nomad.HostVolumeDeleteRequest{ID: volumes[0]}, nil)
		return missingOf(0, 0, err)
	})
	_, _, err = c.HostVolumes().Delete(&nomad.HostVolumeDeleteRequest{ID: volumes[1]}, nil)
	c.mustSucceed(err)
}
