package skerry_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameTests checks that each test, fuzz test and benchmark that a document names exists.
func TestDocumentsNameTests(t *testing.T) {
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, file := range mustTestFiles(t) {
		for _, f := range function.FindAllStringSubmatch(mustText(t, file), -1) {
			there[f[1]] = true
		}
	}
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	for _, document := range mustDocuments(t) {
		named := name.FindAllStringSubmatch(mustText(t, document), -1)
		for _, one := range named {
			if !there[one[1]] {
				t.Errorf("%s names %s, which does not exist", document, one[1])
			}
		}
		if document == "docs/security.md" && len(named) < 40 {
			t.Errorf("%s names %d tests", document, len(named))
		}
	}
}

// TestReadmeLeadsToEveryDocument checks that the README's table of documents links each page of docs.
func TestReadmeLeadsToEveryDocument(t *testing.T) {
	_, table, _ := strings.Cut(mustText(t, "README.md"), "\n## Documentation\n")
	for _, document := range mustDocuments(t) {
		if strings.HasPrefix(document, "docs/") && !strings.Contains(table, "]("+document+")") {
			t.Errorf("README.md has no link to %s", document)
		}
	}
}

// mustDocuments returns the paths of the documents of the repository.
func mustDocuments(tb testing.TB) []string {
	tb.Helper()
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			tb.Fatalf("documents %s: %v, %v", pattern, found, err)
		}
		documents = append(documents, found...)
	}
	return documents
}
