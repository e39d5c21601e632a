package engine

import (
	"testing"

	"skerry/chaos/schedule"
)

func TestEveryKindIsKnown(t *testing.T) {
	for _, k := range schedule.Kinds() {
		if _, known := kinds[k]; !known {
			t.Errorf("%s: nothing brings it about", k)
		}
	}
}
