//go:build planted

package broker_test

import (
	"context"
	"testing"
	"time"

	"skerry/hub/broker"
	"skerry/planted"
)

func TestPlantedForgetDelivery(t *testing.T) {
	abandon := func(after broker.Stats) {
		withCluster(t, broker.Config{}, func(c *cluster) {
			c.addEvals(eval("default", "shop", "e1"))
			c.wantNext("e1") // and its worker dies
			c.broker.Release("hub2")
			sleep(time.Hour)
			c.wantStats(after)
		})
	}
	abandon(broker.Stats{Ready: 1})
	defer planted.Plant(planted.ForgetDelivery)()
	abandon(broker.Stats{Outstanding: 1})
}

func TestPlantedForgetDeliveryOfAHub(t *testing.T) {
	release := func(after broker.Stats) {
		withCluster(t, broker.Config{}, func(c *cluster) {
			c.addEvals(eval("default", "shop", "e1"))
			if _, err := c.broker.DequeueFor(context.Background(), "hub2", nil); err != nil {
				t.Fatal(err)
			}
			c.broker.Release("hub2")
			c.wantStats(after)
		})
	}
	release(broker.Stats{Ready: 1})
	defer planted.Plant(planted.ForgetDelivery)()
	release(broker.Stats{Outstanding: 1})
}
