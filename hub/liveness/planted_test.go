//go:build planted

package liveness_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/planted"
)

func TestPlantedLoseOnElection(t *testing.T) {
	elect := func(t *testing.T, after string) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.mustConnect("shop", "")
			defer runInBackground(t, newLiveness(c, nil).Lead)()
			time.Sleep(time.Second)
			c.expectStatuses("shop=" + after)
		})
	}
	elect(t, "ready")
	defer planted.Plant(planted.LoseOnElection)()
	elect(t, "down")
}
