package intercept

import "regexp"

// variable are the parts of a path that differ between runs, with their placeholders.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`[0-9a-f]{16,}`), "HASH"},
	{regexp.MustCompile(`[0-9]{4,}`), "NUMBER"},
}

// Pattern returns a file's path with placeholders for ids, checksums and numbers.
func Pattern(path string) string {
	for _, v := range variable {
		path = v.pattern.ReplaceAllString(path, v.name)
	}
	return path
}
