package builtin_test

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"skerry/drivers"
	"skerry/drivers/builtin"
	"skerry/drivers/java"
	"skerry/fleet/validate"
)

// TestAbilities compares the table by which hubs refuse jobs that a driver cannot run with the capabilities of the
// drivers.
func TestAbilities(t *testing.T) {
	all, err := builtin.New(builtin.Config{BootID: "boot", DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	names := builtin.Names()
	slices.Sort(names)
	if made := slices.Sorted(maps.Keys(all)); !slices.Equal(made, names) {
		t.Errorf("drivers %v, and the names are %v", made, names)
	}
	for name, d := range all {
		can, known := validate.AbilitiesOf(name)
		says := d.Capabilities()
		if isolated := says.FSIsolation == drivers.FSImage && name != java.Name; isolated != slices.Contains(builtin.Isolated(), name) {
			t.Errorf("driver %s: its isolation is %q, and hubs take it for the contrary", name, says.FSIsolation)
		}
		if name == java.Name {
			if extra := beyond(says, java.Capabilities()); extra != "" {
				t.Errorf("driver %s: %s, which no isolated task has", name, extra)
			}
			says = java.Capabilities()
		}
		_, addresses := d.(drivers.Addresser)
		got := validate.Abilities{Networks: says.Networks, Mounts: says.Mounts, Names: says.Names, HidesEnv: says.HidesEnv, Address: addresses}
		if !known || !slices.Equal(got.Networks, can.Networks) || got.Mounts != can.Mounts || got.Names != can.Names || got.HidesEnv != can.HidesEnv || got.Address != can.Address {
			t.Errorf("driver %s: %+v, and hubs know %+v", name, got, can)
		}
	}
	if validate.NetworkCNI != drivers.NetworkCNI {
		t.Errorf("hubs call networks of plugins %q, drivers %q", validate.NetworkCNI, drivers.NetworkCNI)
	}
}

// beyond names the first capability that a has and b has not.
func beyond(a, b drivers.Capabilities) string {
	for _, n := range a.Networks {
		if !slices.Contains(b.Networks, n) {
			return "network " + n
		}
	}
	if a.Mounts && !b.Mounts {
		return "mounts"
	}
	if a.Names && !b.Names {
		return "names"
	}
	return ""
}
