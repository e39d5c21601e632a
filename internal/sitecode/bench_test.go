package sitecode_test

import (
	"testing"

	"skerry/internal/sitecode"
)

func BenchmarkMatches(b *testing.B) {
	text, _, hash, err := sitecode.Draw()
	if err != nil {
		b.Fatal(err)
	}
	_, secret, err := sitecode.Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if !sitecode.Matches(secret, hash) {
			b.Fatal("it does not match")
		}
	}
}
