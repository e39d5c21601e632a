package validate

// UnsupportedParts returns the table of what is refused at registration: the paths of
// each part by its name.
func UnsupportedParts() map[string][]string {
	parts := map[string][]string{}
	for _, u := range unsupported {
		parts[u.name] = u.paths
	}
	return parts
}

// IsActionName reports whether an action may have that name.
func IsActionName(name string) bool { return isActionName(name) }
