package api_test

import (
	"strings"
	"testing"
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
	}
}
