package oci

// TaskCapabilities returns the capabilities of a task, and those that it adds by name.
func TaskCapabilities(add, drop []string) (bounding, added []string) {
	return taskCapabilities(add, drop)
}
