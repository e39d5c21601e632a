package pace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skerry/internal/pace"
)

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !pace.Rest(t.Context(), time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("rested %s of a minute", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if pace.Rest(ctx, time.Hour) || time.Since(begun) != time.Minute+time.Second {
			t.Errorf("rested until %s behind its context's end", time.Since(begun)-time.Minute-time.Second)
		}
	})
}
