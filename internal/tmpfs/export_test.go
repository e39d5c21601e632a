package tmpfs

// ParseMounts exports parseMounts: the folder, kind, source, and whether mounts below are shared with the machine.
func ParseMounts(text string) (lines [][3]string, shared []bool) {
	for _, e := range parseMounts(text) {
		lines, shared = append(lines, [3]string{e.dir, e.kind, e.source}), append(shared, e.isShared())
	}
	return lines, shared
}
