package sorting_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"skerry/internal/sorting"
)

func TestSlice(t *testing.T) {
	type pair struct{ a, b int }
	for n := range 100 {
		var list []pair
		for range n {
			list = append(list, pair{rand.IntN(10), rand.IntN(10)})
		}
		compare := func(x, y pair) int { return 10*(x.a-y.a) + x.b - y.b }
		want := slices.Clone(list)
		slices.SortFunc(want, compare)
		if sorting.Slice(list, compare); !slices.Equal(list, want) {
			t.Fatalf("sorted %v, want %v", list, want)
		}
	}
}
