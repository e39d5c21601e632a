//go:build race

package wasm_test

// raceDetector says that the tests were built with the race detector.
const raceDetector = true
