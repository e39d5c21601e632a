package api_test

import (
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"
)

// TestRegions registers jobs for this cluster's region, for Nomad's default, and for another
// one, which nothing is passed on to.
func TestRegions(t *testing.T) {
	_, _, c := mustServe(t)
	for region, refused := range map[string]bool{"": false, "global": false, "eu": true} {
		job := exampleJob("web")
		job.Region = &region
		_, _, err := c.Jobs().Register(job, nil)
		if !refused && err != nil || refused && (err == nil || !strings.Contains(err.Error(), `for region "eu", and this cluster's is "global"`)) {
			t.Errorf("region %q: %v", region, err)
		}
		// So for a request that names one, as clients do with NOMAD_REGION.
		job.Region = nil
		_, _, err = c.Jobs().Register(job, &nomad.WriteOptions{Region: region})
		_, _, read := c.Jobs().List(&nomad.QueryOptions{Region: region})
		for _, err := range []error{err, read} {
			if !refused && err != nil || refused && (err == nil || !strings.Contains(err.Error(), `no path to region "eu"`)) {
				t.Errorf("a request for region %q: %v", region, err)
			}
		}
	}
}
