package skerry_test

import (
	"regexp"
	"testing"
)

// TestSecurityNamesTests checks that each test that the threat model names exists.
func TestSecurityNamesTests(t *testing.T) {
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, file := range mustTestFiles(t) {
		for _, f := range function.FindAllStringSubmatch(mustText(t, file), -1) {
			there[f[1]] = true
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(mustText(t, "docs/security.md"), -1)
	for _, name := range named {
		if !there[name[1]] {
			t.Errorf("docs/security.md names %s, which does not exist", name[1])
		}
	}
	if len(named) < 40 {
		t.Errorf("docs/security.md names %d tests", len(named))
	}
}
