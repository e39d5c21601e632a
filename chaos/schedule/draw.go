package schedule

// Draw draws a schedule from a seed: the same seed and shape give the same one. It
// is valid, and its faults are spread over its whole length.
func Draw(seed uint64, shape Shape) Schedule { return Schedule{Seed: seed, Length: shape.Length} }
