package java

// ParseVersion reads what java -version prints.
func ParseVersion(out string) map[string]string { return parseVersion(out) }
