package hub_test

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// A hub that is cut off from the others answers no read of what may have changed, and
// acknowledges no write.
func TestAHubThatIsCutOffSaysNothingItCannotKnow(t *testing.T) {
	hubs := mustCluster(t, 3)
	hubs[0].mustRegister(job("shop"))
	leader := mustLeader(t, hubs)
	cut, other := hubs[0], hubs[1]
	if cut == leader {
		cut, other = hubs[1], hubs[0]
	}
	cut.mustRequest("GET", "/v1/job/shop", nil, nil)
	cut.cfg.Packets.(*cuttableSocket).cut.Store(true)
	other.mustRegister(job("news"))
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
		t.Errorf("it answers %d of a job that the others have", got)
	}
	if _, err := cut.requestHTTP("PUT", "/v1/jobs", job("lost"), nil); err == nil {
		t.Error("it acknowledges a job that the others do not have")
	}
}
