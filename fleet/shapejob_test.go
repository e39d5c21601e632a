package fleet_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"skerry/fleet"
)

// TestJobReadsWhatItWrites writes a job with an Update and reads it strictly, as recorded
// histories are read.
func TestJobReadsWhatItWrites(t *testing.T) {
	job := fleet.Job{ID: "web", TaskGroups: []fleet.TaskGroup{{Name: "main", Update: &fleet.Update{MaxParallel: 3}}}}
	text, err := json.Marshal(job)
	if err != nil || !bytes.Contains(text, []byte(`"Update":{`)) {
		t.Fatalf("%s, %v", text, err)
	}
	var back fleet.Job
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&back); err != nil || !reflect.DeepEqual(back, job) {
		t.Errorf("%+v, %v", back, err)
	}
}
