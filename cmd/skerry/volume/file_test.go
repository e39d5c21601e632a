package volume

import (
	"reflect"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/admission"
	"skerry/fleet/placement"
)

// The file that init writes is one that create reads.
func TestExampleFile(t *testing.T) {
	v, err := parseVolume("volume.host.hcl", []byte(exampleFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := admission.CheckVolume(&v); err != nil {
		t.Error(err)
	}
	if err := placement.CheckVolume(&v); err != nil {
		t.Error(err)
	}
}

func TestVolumeFile(t *testing.T) {
	const src = `
id = "v1"
name = "data"
namespace = "ships"
type = "host"
plugin_id = "mkdir"
node_id = "n1"
node_pool = "sea"
capacity_min = "10GiB"
capacity_max = "20 GB"
constraint {
  attribute = "${meta.rack}"
  value     = "r1"
}
constraint {
  attribute = "${attr.kernel.name}"
  operator  = "!="
  value     = "windows"
}
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
capability {
  access_mode = "single-node-reader-only"
}
parameters {
  mode = "0750"
}
`
	got, err := parseVolume("x.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := fleet.Volume{
		ID: "v1", Name: "data", Namespace: "ships", PluginID: "mkdir", NodeID: "n1", NodePool: "sea",
		RequestedCapacityMinBytes: 10 << 30, RequestedCapacityMaxBytes: 20_000_000_000,
		Constraints: []fleet.Constraint{
			{LTarget: "${meta.rack}", Operand: "=", RTarget: "r1"}, {LTarget: "${attr.kernel.name}", Operand: "!=", RTarget: "windows"},
		},
		RequestedCapabilities: []fleet.VolumeCapability{
			{AccessMode: fleet.AccessWriter, AttachmentMode: fleet.AttachFileSystem}, {AccessMode: fleet.AccessReader},
		},
		Parameters: map[string]string{"mode": "0750"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for src, want := range map[string]string{
		`name = "a"` + "\n" + `type = "csi"`:                   `"csi" are not supported`,
		`name = "a"` + "\n" + `size = 1`:                       `x.hcl:2:1: "size" is not known`,
		`name = "a"` + "\n" + `capacity_min = "much"`:          "capacity_min is not a size",
		`name = "a"` + "\n" + `capacity_max = "999999999999T"`: "capacity_max is too large",
		`name = "a"` + "\n" + `mount_options {}`:               `block "mount_options" is not known`,
		`name = "a"` + "\n" + `constraint { value = 1 }`:       "x.hcl:2:22: value is not a text in quotes",
		`name = "a"` + "\n" + `constraint { rack = "r1" }`:     `"rack" is not known`,
		`name = "a"` + "\n" + `capability { mode = "x" }`:      `"mode" is not known`,
	} {
		if _, err := parseVolume("x.hcl", []byte(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", src, err, want)
		}
	}
}

func FuzzVolumeFile(f *testing.F) {
	f.Add([]byte(exampleFile))
	f.Add([]byte(`{"Name": "a", "RequestedCapacityMinBytes": 1}`))
	f.Add([]byte(`capacity_min = "10GiB"`))
	f.Fuzz(func(t *testing.T, src []byte) {
		v, err := parseVolume("x.hcl", src)
		if err == nil && (v.RequestedCapacityMinBytes < 0 || v.RequestedCapacityMaxBytes < 0) && src[0] != '{' {
			t.Errorf("capacity %d to %d", v.RequestedCapacityMinBytes, v.RequestedCapacityMaxBytes)
		}
	})
}
