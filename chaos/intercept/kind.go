package intercept

import "regexp"

// variable are the parts of a file's path that differ between runs, with the name that stands for them.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`[0-9a-f]{16,}`), "HASH"},
	{regexp.MustCompile(`[0-9]{4,}`), "NUMBER"},
}

// Pattern returns a file's path with names for the ids, the checksums and the numbers in it.
func Pattern(path string) string {
	for _, v := range variable {
		path = v.pattern.ReplaceAllString(path, v.name)
	}
	return path
}
