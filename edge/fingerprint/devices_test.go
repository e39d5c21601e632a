package fingerprint_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skerry/devices"
	"skerry/edge/fingerprint"
	"skerry/fleet"
)

// meteredFinder finds two GPUs of one model, of which one can be measured.
type meteredFinder struct {
	fakeFinder
	measured int
}

func (f *meteredFinder) Kind() string { return "gpu" }

func (f *meteredFinder) Find(context.Context) ([]fleet.Device, error) {
	d := fleet.Device{Kind: "gpu", Vendor: "acme", Type: "gpu", Name: "X1"}
	first, second := d, d
	first.ID, second.ID = "g1", "g2"
	return []fleet.Device{first, second}, nil
}

func (f *meteredFinder) Measure(context.Context) (map[string][]devices.Measurement, error) {
	f.measured++
	return map[string][]devices.Measurement{
		"g1":    {{Name: "Memory state", Unit: "MiB", Value: 3, Max: 16, Summary: true}, {Name: "Temperature", Unit: "C", Value: 41}, {Name: "Mode", Text: "on"}},
		"other": {{Name: "Temperature", Value: 99}},
	}, errors.New("g2 does not answer")
}

// TestMeasureDevices reports the values of devices in the shape that Nomad's clients read.
func TestMeasureDevices(t *testing.T) {
	finder := &meteredFinder{} // its values are in DeviceStats of HostStats
	f := mustNew(t, func(cfg *fingerprint.Config) {
		cfg.Finders = []devices.Finder{&fakeFinder{ids: []string{"plug"}}, finder}
	})
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	if groups := fingerprint.MeasureDevices(f, t.Context(), now); len(groups) > 0 || finder.measured > 0 {
		t.Errorf("before a device was found: %+v", groups)
	}
	mustRead(t, f)
	b, err := json.Marshal(fingerprint.MeasureDevices(f, t.Context(), now))
	want := `[{"Vendor":"acme","Type":"gpu","Name":"X1","InstanceStats":{"g1":{` +
		`"Summary":{"FloatNumeratorVal":3,"FloatDenominatorVal":16,"Unit":"MiB","Desc":"Memory state"},"Stats":{"Attributes":{` +
		`"Memory state":{"FloatNumeratorVal":3,"FloatDenominatorVal":16,"Unit":"MiB","Desc":"Memory state"},` +
		`"Mode":{"StringVal":"on","Desc":"Mode"},"Temperature":{"FloatNumeratorVal":41,"Unit":"C","Desc":"Temperature"}}},` +
		`"Timestamp":"2026-11-27T00:00:00Z"}}}]`
	if err != nil || strings.TrimSpace(string(b)) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
}
