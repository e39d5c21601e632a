package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"
)

// mustAnswer sends a request to a hub, and returns the status and the body of the answer.
func mustAnswer(tb testing.TB, method, url, body string) (int, string) {
	tb.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	var b strings.Builder
	if err := res.Write(&b); err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, b.String()
}

// TestNamespaces drives them with Nomad's client: made, read, listed by pages and
// filters, waited for, used and deleted.
func TestNamespaces(t *testing.T) {
	_, srv, c := mustServe(t)
	for _, ns := range []*nomad.Namespace{
		{Name: "ships", Description: "at sea", Meta: map[string]string{"owner": "fleet"},
			Capabilities: &nomad.NamespaceCapabilities{
				EnabledTaskDrivers: []string{"raw_exec"}, EnabledNetworkModes: []string{"host", "bridge"}, DisabledNetworkModes: []string{"none"},
			}},
		{Name: "farms"},
	} {
		if _, err := c.Namespaces().Register(ns, nil); err != nil {
			t.Fatal(err)
		}
	}
	ships, meta, err := c.Namespaces().Info("ships", nil)
	if err != nil || ships.Description != "at sea" || ships.Meta["owner"] != "fleet" || ships.CreateIndex == 0 ||
		len(ships.Capabilities.EnabledTaskDrivers) != 1 || len(ships.Capabilities.EnabledNetworkModes) != 2 || len(ships.Capabilities.DisabledNetworkModes) != 1 || meta.LastIndex == 0 {
		t.Fatalf("%+v, %v", ships, err)
	}
	list, meta, err := c.Namespaces().List(&nomad.QueryOptions{PerPage: 2}) // the client itself sorts what is on a page
	if err != nil || len(list) != 2 || list[0].Name != "farms" || list[1].Name != "default" || meta.NextToken == "" {
		t.Fatalf("first page %+v, token %q, %v", list, meta.NextToken, err)
	}
	if rest, _, err := c.Namespaces().List(&nomad.QueryOptions{PerPage: 2, NextToken: meta.NextToken}); err != nil || len(rest) != 1 || rest[0].Name != "ships" {
		t.Errorf("second page %+v, %v", rest, err)
	}
	if some, _, err := c.Namespaces().List(&nomad.QueryOptions{Filter: `Meta.owner == "fleet"`}); err != nil || len(some) != 1 {
		t.Errorf("filtered: %+v, %v", some, err)
	}
	if some, _, err := c.Namespaces().PrefixList("f", nil); err != nil || len(some) != 1 || some[0].Name != "farms" {
		t.Errorf("by prefix: %+v, %v", some, err)
	}
	found, _, err := c.Search().PrefixSearch("sh", contexts.Namespaces, nil)
	if err != nil || len(found.Matches[contexts.Namespaces]) != 1 {
		t.Errorf("searched: %+v, %v", found, err)
	}
	woken := make(chan string, 1)
	go func() {
		list, _, err := c.Namespaces().List(&nomad.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute, Prefix: "ports"})
		if err != nil || len(list) != 1 {
			woken <- "no namespace"
			return
		}
		woken <- list[0].Name
	}()
	if _, err := c.Namespaces().Register(&nomad.Namespace{Name: "ports"}, nil); err != nil {
		t.Fatal(err)
	}
	if name := <-woken; name != "ports" {
		t.Errorf("who waited got %s", name)
	}
	if _, err := c.Namespaces().Delete("ports", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Namespaces().Info("ports", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a namespace that is gone: %v", err)
	}
	for _, bad := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"PUT", "/v1/namespace", `{"Name": "a b"}`, "letters, digits", 400},
		{"PUT", "/v1/namespace", `{`, "unexpected end", 400},
		{"PUT", "/v1/namespace/x", `{"Name": "y"}`, "the path names", 400},
		{"PUT", "/v1/namespace", `{"Name": "x", "Quota": "q"}`, "Quota is not supported", 400},
		{"PUT", "/v1/namespace", `{"Name": "x", "NodePoolConfiguration": {"Default": "p"}}`, "NodePoolConfiguration is not supported", 400},
		{"DELETE", "/v1/namespace/default", "", "always exists", 400},
		{"DELETE", "/v1/namespace/nobody", "", "no such namespace", 404},
		{"GET", "/v1/namespaces?filter=Name", "", "read the parameter filter", 400},
	} {
		if status, said := mustAnswer(t, bad.method, srv.URL+bad.path, bad.body); status != bad.status || !strings.Contains(said, bad.want) {
			t.Errorf("%s %s %s: %d %s", bad.method, bad.path, bad.body, status, said)
		}
	}
}

// TestJobsInNamespaces registers jobs of one id in two namespaces, one that does not
// exist, and one that does not allow their driver.
func TestJobsInNamespaces(t *testing.T) {
	_, srv, c := mustServe(t)
	away := func(ns string) *nomad.Client {
		t.Helper()
		c, err := nomad.NewClient(&nomad.Config{Address: srv.URL, Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ships := away("ships")
	_, _, err := ships.Jobs().Register(exampleJob("web"), nil)
	if err == nil || !strings.Contains(err.Error(), `there is no namespace "ships"`) || !strings.Contains(err.Error(), "400") {
		t.Fatalf("in a namespace that does not exist: %v", err)
	}
	if answer, _, err := ships.Jobs().Validate(exampleJob("web"), nil); err != nil || len(answer.ValidationErrors) != 1 {
		t.Errorf("validated: %+v, %v", answer, err)
	}
	if _, err := c.Namespaces().Register(&nomad.Namespace{Name: "ships"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	named := exampleJob("web") // by the file
	named.Namespace = new(string)
	*named.Namespace = "ships"
	if _, _, err := c.Jobs().Register(named, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ships.Jobs().Register(exampleJob("boat"), nil); err != nil { // by the client
		t.Fatal(err)
	}
	for ns, want := range map[string]int{"default": 1, "ships": 2, "*": 3, "nobody": 0} {
		if list, _, err := away(ns).Jobs().List(nil); err != nil || len(list) != want {
			t.Errorf("%d jobs in %s, %v", len(list), ns, err)
		}
	}
	if job, _, err := ships.Jobs().Info("web", nil); err != nil || *job.Namespace != "ships" {
		t.Errorf("read: %+v, %v", job, err)
	}
	if plan, _, err := ships.Jobs().Plan(exampleJob("web"), true, nil); err != nil || plan.JobModifyIndex == 0 || plan.Diff.Type != "None" {
		t.Errorf("planned: %+v, %v", plan, err)
	}
	_, err = c.Namespaces().Delete("ships", nil)
	if err == nil || !strings.Contains(err.Error(), "job boat (pending), job web (pending)") || !strings.Contains(err.Error(), "409") {
		t.Errorf("deleted in use: %v", err)
	}
	_, err = c.Namespaces().Register(&nomad.Namespace{Name: "ships", Capabilities: &nomad.NamespaceCapabilities{DisabledTaskDrivers: []string{"raw_exec"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = ships.Jobs().Register(exampleJob("ferry"), nil); err == nil || !strings.Contains(err.Error(), `does not allow the driver "raw_exec"`) {
		t.Errorf("with a driver that is not allowed: %v", err)
	}
	for _, id := range []string{"web", "boat"} {
		if _, _, err := ships.Jobs().Deregister(id, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Namespaces().Delete("ships", nil); err != nil {
		t.Errorf("deleted when its jobs are gone: %v", err)
	}
	if job, _, err := c.Jobs().Info("web", nil); err != nil || *job.Namespace != "default" {
		t.Errorf("the job of the default namespace: %+v, %v", job, err)
	}
}
