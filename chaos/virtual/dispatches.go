package virtual

import (
	"os"
	"path/filepath"
	"strings"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
	"skerry/drivers"
	"skerry/fleet"
)

// observeStart records the payload and the meta that a starting task of a dispatched job finds.
func (r *run) observeStart(edge string, cfg drivers.TaskConfig) {
	child := fleet.JobID(cfg.Env["NOMAD_JOB_ID"])
	parent, _, dispatched := strings.Cut(string(child), fleet.DispatchPrefix(""))
	if j, _ := r.s.Job(fleet.JobID(parent)); !dispatched || j.Payload == "" {
		return
	}
	payload, err := os.ReadFile(filepath.Join(cfg.LocalDir, schedule.PayloadFile))
	if err != nil && !os.IsNotExist(err) {
		r.recordHarnessFailure("read the payload of %s: %v", cfg.ID, err)
		return
	}
	meta := map[string]string{}
	for name, value := range cfg.Env {
		if key, ok := strings.CutPrefix(name, "NOMAD_META_"); ok && key == strings.ToLower(key) { // each key is there in upper case, too
			meta[key] = value
		}
	}
	r.judgeAndRecord(check.Observation{Given: &check.GivenInput{Edge: edge, Child: child, Input: check.DescribeInput(payload, meta)}})
}
