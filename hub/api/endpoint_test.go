package api_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryRouteIsDeclared fails for a route that is registered beside the declarations of endpoints: it would not say
// what it requires.
func TestEveryRouteIsDeclared(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if f != "endpoint.go" && !strings.HasSuffix(f, "_test.go") && regexp.MustCompile(`mux\.Handle(Func)?\(`).Match(src) {
			t.Errorf("%s registers a route: declare an endpoint", f)
		}
	}
	a := newListFixture(t).api
	for _, e := range a.Endpoints() {
		if e.Requires == "" || !strings.HasPrefix(e.Path, "/v1/") && !strings.HasPrefix(e.Path, "/.well-known/") {
			t.Errorf("endpoint %v %s requires %q", e.Methods, e.Path, e.Requires)
		}
	}
	if err := a.ServeUndeclared(); err == nil || !strings.Contains(err.Error(), "GET /v1/undeclared does not declare") {
		t.Errorf("an endpoint without a requirement: %v", err)
	}
}
