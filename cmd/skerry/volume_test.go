package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestDynamicVolumeForReal creates a volume on an edge, runs a job that needs it, and deletes it.
func TestDynamicVolumeForReal(t *testing.T) {
	t.Parallel()
	hubAddress := mustDev(t)
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/jobs", `{"Job": {"ID": "shop", "Type": "service", "Datacenters": ["*"], "TaskGroups": [{"Name": "web",
		"Volumes": {"d": {"Name": "d", "Type": "host", "Source": "sales"}},
		"Tasks": [{"Name": "run", "Driver": "raw_exec", "Config": {"command": "/bin/sleep", "args": ["3600"]}, "Resources": {"CPU": 50, "MemoryMB": 50}}]}]}}`, nil)
	var created struct{ Volume struct{ ID string } }
	request := `{"Volume": {"Name": "sales", "Parameters": {"mode": "0750"}, "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]}}`
	eventually(t, "an edge takes the volume", func() string {
		if err := answer(t, http.MethodPut, hubAddress+"/v1/volume/host/create", request, &created); err != nil {
			return err.Error()
		}
		return ""
	})
	var volume struct {
		State, HostPath string
		Allocations     []struct{ ID, ClientStatus string }
	}
	address := hubAddress + "/v1/volume/host/" + created.Volume.ID
	eventually(t, "the volume is ready and used", func() string {
		mustAnswer(t, http.MethodGet, address, "", &volume)
		if volume.State == "ready" && len(volume.Allocations) == 1 && volume.Allocations[0].ClientStatus == "running" {
			return ""
		}
		return fmt.Sprintf("%+v", volume)
	})
	if info, err := os.Stat(volume.HostPath); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("its folder: %v, %v", info, err)
	}
	if err := answer(t, http.MethodDelete, address, "", nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("deleting a volume that is in use: %v", err)
	}
	mustAnswer(t, http.MethodDelete, hubAddress+"/v1/job/shop", "", nil)
	eventually(t, "the volume is deleted", func() string {
		err := answer(t, http.MethodDelete, address, "", nil)
		if _, gone := os.Stat(volume.HostPath); os.IsNotExist(gone) && err != nil && strings.Contains(err.Error(), "no such volume") {
			return ""
		}
		return fmt.Sprint("its deletion: ", err)
	})
}
