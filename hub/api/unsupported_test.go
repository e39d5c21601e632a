package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUnsupportedSubjects asks as Nomad's clients do for subjects that do not exist here: each answer says what to use instead.
func TestUnsupportedSubjects(t *testing.T) {
	a := newListFixture(t).api
	for request, hint := range map[string]string{
		"GET /v1/volume/csi/data":                              "skerry volume create",
		"POST /v1/acl/identity/client-introduction-token":      "skerry token create",
		"GET /v1/client/identity?node_id=" + string(nodeID):    "skerry token create",
		"POST /v1/client/identity/renew?node_id=" + "anything": "skerry token create",
	} {
		method, url, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, url, nil)
		r.Header.Set("X-Nomad-Token", listSecret)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), hint) {
			t.Errorf("%s: status %d, %s", request, w.Code, w.Body)
		}
	}
}
