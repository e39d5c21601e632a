package engine_test

import (
	"testing"

	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

func TestEveryKindIsKnown(t *testing.T) {
	for _, k := range schedule.Kinds() {
		if !engine.CanInject(k) {
			t.Errorf("%s: nothing brings it about", k)
		}
	}
}
