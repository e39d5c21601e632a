package admission_test

import (
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/admission"
)

// TestVariablePath tries paths by Nomad's rules.
func TestVariablePath(t *testing.T) {
	for path, want := range map[string]string{
		"app/db": "", "A-b_c~1/2": "", "nomadic/x": "", strings.Repeat("x", 128): "",
		"nomad/jobs": "", "nomad/jobs/shop/web/main": "", "nomad/job-templates/web": "",
		"":                       "not a valid path",
		strings.Repeat("x", 129): "not a valid path",
		"a.b":                    "not a valid path", "../x": "not a valid path", "a b": "not a valid path", "ä": "not a valid path", "a\n": "not a valid path",
		"/a": "not a valid path", "a/": "not a valid path", "a//b": "not a valid path",
		"nomad": "reserved", "nomad/x": "reserved", "nomad/job-templates": "reserved", "nomad/job-templates/a/b": "reserved",
	} {
		if err := admission.CheckVariablePath(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

func TestVariableItems(t *testing.T) {
	for name, tc := range map[string]struct {
		items fleet.VariableItems
		valid bool
	}{
		"none":     {nil, true},
		"full":     {fleet.VariableItems{"key": strings.Repeat("x", 64<<10-3)}, true},
		"too much": {fleet.VariableItems{"key": strings.Repeat("x", 64<<10-2)}, false},
		"no name":  {fleet.VariableItems{"": "x"}, false},
	} {
		if err := admission.CheckVariableItems("p", tc.items); (err == nil) != tc.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVariableLock(t *testing.T) {
	for _, tc := range []struct {
		ttl, delay, wantTTL, wantDelay time.Duration
		valid                          bool
	}{
		{0, 0, 15 * time.Second, 15 * time.Second, true},
		{10 * time.Second, time.Millisecond, 10 * time.Second, time.Millisecond, true},
		{24 * time.Hour, time.Hour, 24 * time.Hour, time.Hour, true},
		{9 * time.Second, 0, 9 * time.Second, 15 * time.Second, false},
		{25 * time.Hour, 0, 25 * time.Hour, 15 * time.Second, false},
		{time.Minute, -1, time.Minute, -1, false},
	} {
		l := fleet.VariableLock{TTL: tc.ttl, LockDelay: tc.delay}
		if err := admission.CheckVariableLock("p", &l); (err == nil) != tc.valid || l.TTL != tc.wantTTL || l.LockDelay != tc.wantDelay {
			t.Errorf("%s, %s: %+v, %v", tc.ttl, tc.delay, l, err)
		}
	}
}
