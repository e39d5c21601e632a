package fingerprint

// VolumeOf returns the device that is mounted where path lies.
func VolumeOf(lines []string, path string) string { return volumeOf(lines, path) }
