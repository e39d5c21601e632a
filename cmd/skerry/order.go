package main

import (
	"cmp"
	"slices"
)

// newestFirst orders things by when they were made. All lists of things that come and go are
// shown like this; the API keeps Nomad's orders.
func newestFirst[T any, K cmp.Ordered](list []T, made func(T) K) {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(made(b), made(a)) })
}
