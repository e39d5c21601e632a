package java

import "skerry/drivers"

// ParseVersion reads what java -version prints.
func ParseVersion(out string) map[string]string { return parseVersion(out) }

// CheckJar checks the jar of a task.
func CheckJar(cfg drivers.TaskConfig, jar, workDir string, isolated bool, mounted ...string) error {
	return checkJar(cfg, jar, workDir, isolated, mounted)
}
