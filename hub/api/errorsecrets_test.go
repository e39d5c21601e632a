package api_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"skerry/fleet/validate"
	"skerry/hub/access"
	hubapi "skerry/hub/api"
)

// sentSecret is in every body and token that TestErrorsRepeatNoSecret sends.
const sentSecret = "mArKeD/s3cret"

// wrongBodies have a secret where something is wrong with the body.
var wrongBodies = []string{
	`{"Items": {"key": "` + sentSecret + `"}, "Path": "a/b"`,
	`{"Items": {"key": "` + sentSecret + `"}, "Path": "a/b"} ` + sentSecret,
	`"` + sentSecret + `"`, `["` + sentSecret + `"]`, sentSecret,
	`{"Items": {"key": {"deep": "` + sentSecret + `"}}}`, `{"Items": ["` + sentSecret + `"]}`, `{"Items": {"a key": "` + sentSecret + `"}, "Path": "a b"}`,
	`{"BootstrapSecret": "` + sentSecret + `"}`, `{"SecretID": "` + sentSecret + `", "Name": "n", "Type": "management"}`, `{"OneTimeSecretID": "` + sentSecret + `"}`,
	`{"AuthMethodName": "sso", "LoginToken": "` + sentSecret + `"}`, `{"AuthMethodName": "nobody", "State": "` + sentSecret + `", "Code": "` + sentSecret + `", "ClientNonce": "` + sentSecret + `"}`,
	`{"Name": "m", "Type": "OIDC", "Config": {"OIDCClientSecret": "` + sentSecret + `", "OIDCDiscoveryURL": "https://user:` + sentSecret + `@sso.example.com?key=` + sentSecret + `"}}`,
	`{"Name": "m", "Type": "JWT", "TokenLocality": "global", "MaxTokenTTL": "1h", "Config": {"JWKSURL": "http://user:` + sentSecret + `@sso.example.com/keys?key=` + sentSecret + `"}}`,
}

// TestErrorsRepeatNoSecret: no error of an endpoint, no line of the log and no entry of the audit repeats a secret of the request: of its body,
// which is malformed, of the wrong type or refused, nor its token.
func TestErrorsRepeatNoSecret(t *testing.T) { synctest.Test(t, checkErrorsForSecrets) }

func checkErrorsForSecrets(t *testing.T) {
	f, log := newAccessFixture(t), new(bytes.Buffer)
	h := frozenHub{f.hub}
	var err error
	f.api, err = hubapi.New(hubapi.Config{
		State: f.hub.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: frozenSecrets{secretsOf(f.hub)}, Locks: locksOf(f.hub), Hosts: append(testHosts, "127.0.0.1"),
		Drivers: validate.KnownDrivers{Names: []string{"sim"}}, Access: access.New(access.Config{State: f.hub.store}), Logins: loginsOf(f.hub), Audit: f.audit,
		Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	for _, e := range f.api.Endpoints() {
		path := f.pathOf(e.Path)
		for _, method := range e.Methods {
			requests := [][2]string{{"", sentSecret}}
			for _, body := range wrongBodies {
				requests = append(requests, [2]string{body, listSecret})
			}
			if method == http.MethodGet {
				requests = requests[:1] // it has no body
			}
			for _, request := range requests {
				f.audit.entries = nil
				log.Reset()
				w := f.ask(method, path, request[0], request[1])
				entries, err := json.Marshal(f.audit.entries)
				if err != nil {
					t.Fatal(err)
				}
				called++
				for what, text := range map[string]string{"answer": w.Body.String(), "audit": string(entries), "log": log.String()} {
					if strings.Contains(text, "mArKeD") || strings.Contains(text, "s3cret") {
						t.Errorf("%s %s with %s: the %s has a secret: %d %s", method, path, request[0], what, w.Code, text)
					}
				}
			}
		}
	}
	if called < 1000 {
		t.Errorf("%d calls are too few", called)
	}
}
