package artifacts_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry/edge/artifacts"
	"skerry/fleet"
)

// mark is in every credential of these tests.
const mark = "mArKeD"

// TestCredentialsOfArtifactsAreHidden: whatever fails about an artifact, neither the error nor an event nor the log has a credential of its
// address, its options or its headers, or the query of an address, which may be signed.
func TestCredentialsOfArtifactsAreHidden(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	host := strings.TrimPrefix(gone.URL, "http://")
	moved := httptest.NewServer(http.RedirectHandler(gone.URL+"/b?X-Amz-Signature="+mark, http.StatusFound))
	defer moved.Close()
	says := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		w.Header().Set("Location", "ftp://elsewhere/"+password+r.Header.Get("X-Key")+r.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
	}))
	defer says.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("cut"))
	}))
	defer cut.Close()
	with := func(server *httptest.Server, user string) string {
		return strings.Replace(server.URL, "://", "://"+user+"@", 1)
	}
	for _, a := range []fleet.TaskArtifact{
		{GetterSource: gone.URL + "/a?token=" + mark},
		{GetterSource: "http://" + mark + "@" + host + "/a"},
		{GetterSource: "http://u:" + mark + "@" + host + "/a"},
		{GetterSource: gone.URL + "/a", GetterOptions: map[string]string{"token": mark}},
		{GetterSource: moved.URL + "/a"},
		{GetterSource: with(says, "u:"+mark) + "/a", GetterHeaders: map[string]string{"X-Key": mark}},
		{GetterSource: cut.URL + "/a?token=" + mark},
		{GetterSource: "git::http://u:" + mark + "@" + host + "/r.git"},
		{GetterSource: "git::http://" + mark + "@" + host + "/r.git?token=" + mark},
		{GetterSource: "s3::" + gone.URL + "/b/k", GetterOptions: map[string]string{"aws_access_key_id": "id", "aws_access_key_secret": mark, "aws_access_token": mark}},
		{GetterSource: "oci://u:" + mark + "@" + host + "/shop/web:1", GetterOptions: map[string]string{"plain_http": "true"}},
		{GetterSource: "oci://" + mark + "@" + host + "/shop/Web:1"},
		{GetterSource: "http://u:pa/" + mark + "@" + host + "/a"},
		{GetterSource: "http://u:pa?" + mark + "@" + host + "/a"},
		{GetterSource: "file://relative?token=" + mark},
		{GetterSource: "smb://u:" + mark + "@" + host + "/a"},
		{GetterSource: mark + ":" + mark + "@" + host},
	} {
		task := newTask(t, a)
		err := task.prepare(t)
		if err == nil {
			t.Errorf("%s was fetched", a.GetterSource)
			continue
		}
		for _, told := range append(task.events, err.Error(), task.log.String()) {
			if strings.Contains(told, mark) {
				t.Errorf("%s: a credential is in %s", a.GetterSource, told)
			}
		}
	}
}

// TestCredentialsOfGitAreOnNoCommandLine: git gets the user and the password of an address, and its command lines, which each user of the
// machine can read, have neither.
func TestCredentialsOfGitAreOnNoCommandLine(t *testing.T) {
	program, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no program git")
	}
	dir := t.TempDir()
	lines := filepath.Join(dir, "lines")
	script := "#!/bin/sh\necho \"$@\" >> " + lines + "\nexec " + program + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for user, want := range map[string]string{"u:" + mark: "u " + mark, mark: mark + " ", "u%40h:" + mark + "%2F1": "u@h " + mark + "/1"} {
		got := ""
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, password, ok := r.BasicAuth()
			if !ok {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			got = name + " " + password
			http.NotFound(w, r)
		}))
		_, err := newSite(t).fetch("git::"+strings.Replace(srv.URL, "://", "://"+user+"@", 1)+"/r.git", fleet.ArtifactAny, "x")
		srv.Close()
		if got != want || err == nil {
			t.Errorf("the server got %q, want %q (%v)", got, want, err)
		}
	}
	text, err := os.ReadFile(lines)
	if err != nil || !strings.Contains(string(text), "fetch") || strings.Contains(string(text), mark) {
		t.Errorf("command lines: %s (%v)", text, err)
	}
}

// TestQueryOfAStoredArtifactIsHidden: the event that says where an artifact comes from, and the log about a damaged one.
func TestQueryOfAStoredArtifactIsHidden(t *testing.T) {
	srv, _ := serve(t, map[string][]byte{"a": []byte("content")})
	task := newTask(t, fleet.TaskArtifact{GetterSource: srv.URL + "/a?token=" + mark})
	again := func() string {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(task.state, "alloc-1")); err != nil {
			t.Fatal(err)
		}
		if err := task.prepare(t); err != nil {
			t.Fatal(err)
		}
		return strings.Join(task.events, "\n") + task.log.String()
	}
	again()
	if told := again(); !strings.Contains(told, "comes from the edge's store") || strings.Contains(told, mark) {
		t.Errorf("from the store: %s", told)
	}
	blobs, err := filepath.Glob(filepath.Join(task.dir, "data", "store", "blobs", "*"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("%q, %v", blobs, err)
	}
	if err := os.WriteFile(blobs[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if told := again(); !strings.Contains(told, "damaged") || strings.Contains(told, mark) {
		t.Errorf("a damaged one: %s", told)
	}
}

// FuzzAddressesAreHidden: no error about a source has the user of its address.
func FuzzAddressesAreHidden(f *testing.F) {
	f.Add("https", "example.com/a?x")
	f.Add("git::ssh", "%zz")
	f.Add("oci", "h/R:1?other")
	f.Fuzz(func(t *testing.T, scheme, rest string) {
		_, err := artifacts.ParseSource(scheme+"://user:"+mark+"@"+rest, nil)
		if err != nil && !strings.Contains(scheme, "://") && strings.Contains(err.Error(), mark) {
			t.Errorf("%v", err)
		}
	})
}
