//go:build planted

package hub_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"skerry/planted"
)

// A hub that is cut off from the others answers what it cannot know, and says done
// of what it cannot do.
func TestPlantedWordsOfAHubThatIsCutOff(t *testing.T) {
	hubs := mustCluster(t, 3)
	hubs[0].mustRequest("PUT", "/v1/jobs", job("shop"), nil)
	leader := mustLeader(t, hubs)
	cut, other := hubs[0], hubs[1]
	if cut == leader {
		cut, other = hubs[1], hubs[0]
	}
	cut.mustRequest("GET", "/v1/job/shop", nil, nil)
	cut.cfg.Packets.(*cuttableSocket).cut.Store(true)
	other.mustRequest("PUT", "/v1/jobs", job("news"), nil)
	reads := func(path string) int {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+cut.HTTPAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	if got := reads("/v1/job/news"); got != 0 {
		t.Errorf("without the bug it answers %d", got)
	}
	if _, err := cut.requestHTTP("PUT", "/v1/jobs", job("lost"), nil); err == nil {
		t.Error("without the bug it takes a job")
	}
	restore := planted.Plant(planted.StaleRead)
	if got := reads("/v1/job/news"); got != http.StatusNotFound {
		t.Errorf("with the bug it answers %d of a job that there is", got)
	}
	restore()
	defer planted.Plant(planted.AcknowledgeInDoubt)()
	cut.mustRequest("PUT", "/v1/jobs", job("lost"), nil)
	if _, err := other.requestHTTP("GET", "/v1/job/lost", nil, nil); err == nil {
		t.Error("the job that was acknowledged is there")
	}
}
