package prefetch

import (
	"testing"
	"time"
)

func TestRetryDelay(t *testing.T) {
	for _, c := range []struct {
		failures int
		random   float64
		want     time.Duration
	}{
		{1, 0, 10 * time.Second}, {2, 0, 20 * time.Second}, {2, 1, 10 * time.Second}, {6, 0, 320 * time.Second},
		{7, 0, 10 * time.Minute}, {1000, 0, 10 * time.Minute}, {1000, 0.5, 450 * time.Second},
	} {
		if got := retryDelay(c.failures, 10*time.Second, 10*time.Minute, c.random); got != c.want {
			t.Errorf("after %d failures, random %v: %v, want %v", c.failures, c.random, got, c.want)
		}
	}
}
