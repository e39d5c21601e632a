package checks_test

import (
	"context"
	"testing"
	"time"

	"skerry/edge/checks"
	"skerry/fleet"
)

// TestMissingDevicesAreShown treats the devices of tasks as checks that fail while one is missing.
func TestMissingDevicesAreShown(t *testing.T) {
	var changed int
	mono := 5 * time.Second
	c, err := checks.New(checks.Config{
		Node: func() fleet.Node { return fleet.Node{} }, Mono: func() time.Duration { return mono }, Now: func() time.Time { return time.Unix(7, 0) },
		Changed: func(fleet.AllocID) { changed++ }, Unhealthy: func(context.Context, fleet.AllocID, string, string) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	a := fleet.Alloc{ID: "a1", Name: "shop.g[0]"}
	c.ReportDevices(a, "t", "")
	if _, _, ok := c.Devices("a1"); ok || changed != 0 || len(c.Results("a1")) != 0 {
		t.Errorf("nothing was missing: %t, %d changes, %v", ok, changed, c.Results("a1"))
	}
	c.ReportDevices(a, "t", "device usb/stick/x (s1)")
	c.ReportDevices(a, "t", "device usb/stick/x (s1)")
	c.ReportDevices(a, "u", "device usb/stick/x (s2)")
	if _, missing, ok := c.Devices("a1"); !ok || missing != "device usb/stick/x (s1)" || changed != 2 {
		t.Errorf("missing %q, %t, %d changes", missing, ok, changed)
	}
	want := fleet.CheckResult{ID: "a1/t/devices", Check: "devices", Group: "shop.g[0]", Mode: "healthiness", Task: "t", Status: checks.Failure, Output: "device usb/stick/x (s1)", Timestamp: 7}
	if got := c.Results("a1")[want.ID]; got != want {
		t.Errorf("the result is %+v, want %+v", got, want)
	}
	mono = 9 * time.Second
	c.ForgetDevices("a1", "u")
	c.ReportDevices(a, "t", "")
	if since, missing, ok := c.Devices("a1"); !ok || missing != "" || since != 9*time.Second || changed != 3 || c.Results("a1")[want.ID].Status != checks.Success {
		t.Errorf("back since %s, missing %q, %t, %d changes, %v", since, missing, ok, changed, c.Results("a1"))
	}
	c.ForgetDevices("a1", "t")
	if _, _, ok := c.Devices("a1"); ok || len(c.Results("a1")) != 0 {
		t.Errorf("an ended task is remembered: %v", c.Results("a1"))
	}
}
