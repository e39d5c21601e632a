package artifacts_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry/edge/artifacts"
	"skerry/fleet"
)

// bucket is a folder of objects.
type bucket struct {
	region  string
	public  bool                // everybody may read it
	payer   bool                // who reads it has to say that he pays
	objects map[string][]string // by name, the versions v1, v2, …
}

// s3Server serves buckets as Amazon does: by paths, to requests that a key has signed and to anonymous ones.
type s3Server struct {
	t       *testing.T
	buckets map[string]bucket
	secrets map[string]string // by the key's id
	tokens  map[string]string // by the key's id, the session token that it needs
	cut     atomic.Bool       // the next content is cut in the middle
	reads   atomic.Int64      // contents that were sent, a part of one included
}

// refusal is an error of S3.
type refusal struct {
	status             int
	code, text, region string
}

// ServeHTTP implements http.Handler.
func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	path, err := url.QueryUnescape(path) // S3 takes a plus sign for a space
	if err != nil {
		s.t.Error(err)
	}
	name, object, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	b := s.buckets[name]
	if no := s.authorize(r, b); no != nil {
		s.refuse(w, *no)
		return
	}
	versions := b.objects[object]
	if len(versions) == 0 {
		s.refuse(w, refusal{404, "NoSuchKey", "The specified key does not exist.", ""})
		return
	}
	content := versions[len(versions)-1]
	if want := r.URL.Query().Get("versionId"); want != "" {
		i := slices.IndexFunc([]string{"v1", "v2"}, func(v string) bool { return v == want })
		if i < 0 || i >= len(versions) {
			s.refuse(w, refusal{404, "NoSuchVersion", "The specified version does not exist.", ""})
			return
		}
		content = versions[i]
	}
	s.reads.Add(1)
	w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(content))))
	if s.cut.Swap(false) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		fmt.Fprint(w, content[:len(content)/2])
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(content)))
}

// refuse writes an error as S3 describes it, with all that it knows of the request.
func (s *s3Server) refuse(w http.ResponseWriter, no refusal) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(no.status)
	region := ""
	if no.region != "" {
		region = "<Region>" + no.region + "</Region>"
	}
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>%s</Code><Message>%s</Message>%s<RequestId>4442587FB7D0A2F9</RequestId></Error>`, no.code, no.text, region)
}

// authorize returns nil if the request may read the bucket.
func (s *s3Server) authorize(r *http.Request, b bucket) *refusal {
	auth := r.Header.Get("Authorization")
	if auth == "" {
		if b.public {
			return nil
		}
		return &refusal{403, "AccessDenied", "Access Denied", ""}
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(auth, "AWS4-HMAC-SHA256 "), ", ") {
		k, v, _ := strings.Cut(part, "=")
		fields[k] = v
	}
	scope := strings.Split(fields["Credential"], "/") // ID/DAY/REGION/s3/aws4_request
	if len(scope) != 5 {
		return &refusal{400, "AuthorizationHeaderMalformed", "The authorization header is malformed.", ""}
	}
	secret, known := s.secrets[scope[0]]
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	switch {
	case !known:
		return &refusal{403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", ""}
	case r.Header.Get("X-Amz-Security-Token") != s.tokens[scope[0]]:
		return &refusal{400, "InvalidToken", "The provided token is malformed or otherwise invalid.", ""}
	case scope[2] != b.region:
		return &refusal{400, "AuthorizationHeaderMalformed", "The authorization header is malformed; the region '" + scope[2] + "' is wrong", b.region}
	case err != nil || time.Since(at).Abs() > 15*time.Minute:
		return &refusal{403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.", ""}
	case fields["Signature"] != s.signatureOf(r, scope, secret, strings.Split(fields["SignedHeaders"], ";")):
		return &refusal{403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.", ""}
	case b.payer && r.Header.Get("X-Amz-Request-Payer") != "requester":
		return &refusal{403, "AccessDenied", "Access Denied", ""}
	}
	return nil
}

// signatureOf returns the signature that a request must have, from what came over the wire. It is "" if the request has a
// header of Amazon that is not signed.
func (s *s3Server) signatureOf(r *http.Request, scope []string, secret string, signed []string) string {
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(signed, name) {
			return ""
		}
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	pairs := strings.FieldsFunc(strings.ReplaceAll(query, "+", "%20"), func(c rune) bool { return c == '&' })
	slices.SortFunc(pairs, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
	lines := []string{r.Method, path, strings.Join(pairs, "&")}
	for _, name := range signed {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		lines = append(lines, name+":"+strings.TrimSpace(value))
	}
	lines = append(lines, "", strings.Join(signed, ";"), r.Header.Get("X-Amz-Content-Sha256"))
	request := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	key := []byte("AWS4" + secret)
	text := fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", r.Header.Get("X-Amz-Date"), strings.Join(scope[1:], "/"), request)
	for _, part := range append(slices.Clone(scope[1:]), text) {
		mac := hmac.New(sha256.New, key)
		fmt.Fprint(mac, part)
		key = mac.Sum(nil)
	}
	return fmt.Sprintf("%x", key)
}

// mustS3 serves some buckets until the test ends.
func mustS3(t *testing.T) (*s3Server, string) {
	t.Helper()
	s := &s3Server{
		t: t, secrets: map[string]string{"AKIAIOSFODNN7EXAMPLE": "wJalr/+SECRET", "ASIATEMPORARY": "other-SECRET"},
		tokens: map[string]string{"ASIATEMPORARY": "session/TOKEN=="},
		buckets: map[string]bucket{
			"open": {region: "us-east-1", public: true, objects: map[string][]string{"a": {"for everybody"}}},
			"shop": {region: "us-east-1", objects: map[string][]string{
				"a/b": {"old", "new"}, "sum + part=ü (1).txt": {"a strange name"}, "large": {strings.Repeat("0123456789", 10_000)},
			}},
			"isle": {region: "eu-west-1", objects: map[string][]string{"a": {"far away"}}},
			"toll": {region: "us-east-1", payer: true, objects: map[string][]string{"a": {"paid"}}},
		},
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, "s3::" + srv.URL
}

// options returns options of an artifact block with a key, and more.
func (s *s3Server) options(id string, more ...string) map[string]string {
	o := map[string]string{"aws_access_key_id": id, "aws_access_key_secret": s.secrets[id]}
	for i := 0; i < len(more); i += 2 {
		o[more[i]] = more[i+1]
	}
	return o
}

// TestS3 fetches objects of a server that checks signatures.
func TestS3(t *testing.T) {
	server, base := mustS3(t)
	const key = "AKIAIOSFODNN7EXAMPLE"
	signed := server.options(key)
	for _, c := range []struct {
		name, object string
		options      map[string]string
		headers      map[string]string
		want         string   // the content
		refused      []string // parts of the error
	}{
		{name: "anonymous", object: "/open/a", want: "for everybody"},
		{name: "signed", object: "/shop/a/b", options: signed, want: "new"},
		{name: "options in the address", object: "/shop/a/b?aws_access_key_id=" + key + "&aws_access_key_secret=" + url.QueryEscape(server.secrets[key]), want: "new"},
		{name: "an older version", object: "/shop/a/b", options: server.options(key, "version", "v1"), want: "old"},
		{name: "the version as S3 calls it", object: "/shop/a/b?versionId=v1", options: signed, want: "old"},
		{name: "a strange name", object: "/shop/sum%20+%20part=ü%20(1).txt", options: signed, want: "a strange name"},
		{name: "another region", object: "/isle/a", options: server.options(key, "region", "eu-west-1"), want: "far away"},
		{name: "a session token", object: "/shop/a/b", options: server.options("ASIATEMPORARY", "aws_access_token", "session/TOKEN=="), want: "new"},
		{name: "a header of Amazon", object: "/toll/a", options: signed, headers: map[string]string{"x-amz-request-payer": " requester"}, want: "paid"},
		{name: "more in the query", object: "/shop/a/b?x=1&x-y=2", options: signed, want: "new"},

		{name: "nobody may read it", object: "/shop/a/b", refused: []string{"403 Forbidden: AccessDenied", "write the options aws_access_key_id"}},
		{name: "a wrong secret", object: "/shop/a/b", options: server.options(key, "aws_access_key_secret", "wrong-SECRET"),
			refused: []string{"403 Forbidden: SignatureDoesNotMatch: The request signature we calculated", "check the options aws_access_key_id, aws_access_key_secret"}},
		{name: "an unknown key", object: "/shop/a/b", options: server.options("AKIANOBODY", "aws_access_key_secret", "x-SECRET"), refused: []string{"403 Forbidden: InvalidAccessKeyId", "check the options"}},
		{name: "no session token", object: "/shop/a/b", options: server.options("ASIATEMPORARY"), refused: []string{"400 Bad Request: InvalidToken", "aws_access_token"}},
		{name: "a wrong region", object: "/isle/a", options: signed, refused: []string{"AuthorizationHeaderMalformed", `write the option region = "eu-west-1"`}},
		{name: "a missing object", object: "/shop/none", options: signed, refused: []string{"404 Not Found: NoSuchKey: The specified key does not exist.", "check the bucket, the name of the object"}},
		{name: "a missing version", object: "/shop/a/b", options: server.options(key, "version", "v3"), refused: []string{"404 Not Found: NoSuchVersion", "the option version"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			source, err := artifacts.ParseSource(base+c.object, c.options)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.fetcher.Fetch(t.Context(), artifacts.Request{Source: source, Headers: c.headers, Mode: fleet.ArtifactFile, Root: s.root, Dest: "got"})
			if c.refused == nil {
				if err != nil {
					t.Fatal(err)
				}
				s.mustHave(t, "got", c.want)
				return
			}
			if fleet.CodeOf(err) != fleet.CodeUnavailable {
				t.Fatalf("fetched with %v, want an error that is tried again", err)
			}
			for _, want := range append(c.refused, "fetch artifact "+base) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error has no %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "TOKEN") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}

// TestS3ResumesAndStores cuts a download, which is signed again where it goes on; then the source is gone.
func TestS3ResumesAndStores(t *testing.T) {
	server, base := mustS3(t)
	s := newSite(t)
	source, err := artifacts.ParseSource(base+"/shop/large", server.options("AKIAIOSFODNN7EXAMPLE"))
	if err != nil {
		t.Fatal(err)
	}
	server.cut.Store(true)
	for _, dest := range []string{"one", "two"} {
		if _, err := s.fetcher.Fetch(t.Context(), artifacts.Request{Source: source, Mode: fleet.ArtifactFile, Root: s.root, Dest: dest}); err != nil {
			t.Fatal(err)
		}
		s.mustHave(t, dest, server.buckets["shop"].objects["large"][0])
	}
	if n := server.reads.Load(); n != 2 {
		t.Errorf("it was read %d times, want 2: a half each", n)
	}
}

// TestS3WithAWrongClock says what is wrong on an edge that does not know the time.
func TestS3WithAWrongClock(t *testing.T) {
	server, base := mustS3(t)
	s := newSite(t)
	f := artifacts.NewFetcher(artifacts.Config{Store: s.store, Now: func() time.Time { return time.Unix(1000, 0) }, Log: slog.New(slog.DiscardHandler)})
	source, err := artifacts.ParseSource(base+"/shop/a/b", server.options("AKIAIOSFODNN7EXAMPLE"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Fetch(context.Background(), artifacts.Request{Source: source, Root: s.root, Dest: "x"})
	if err == nil || !strings.Contains(err.Error(), "RequestTimeTooSkewed") || !strings.Contains(err.Error(), "set the clock of the edge") {
		t.Errorf("with a clock in 1970: %v", err)
	}
}
