package artifacts_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"skerry/edge/artifacts"
	"skerry/fleet"
)

func TestSourceSpellings(t *testing.T) {
	for source, want := range map[string][4]string{
		"https://example.com/a/file.txt":                                                                  {"http", "https://example.com/a/file.txt", "", ""},
		"http::http://example.com/x.tar.gz?archive=false&v=1":                                             {"http", "http://example.com/x.tar.gz?v=1", "", ""},
		"https://example.com/x-1.2.tar.gz//x-*/bin?checksum=md5:" + zeros(32):                             {"http", "https://example.com/x-1.2.tar.gz", "x-*/bin", "tar.gz"},
		"https://example.com/x?archive=zip":                                                               {"http", "https://example.com/x", "", "zip"},
		"git::https://example.com/r.git//sub?ref=v1&depth=1":                                              {"git", "https://example.com/r.git", "sub", ""},
		"github.com/hashicorp/nomad":                                                                      {"git", "https://github.com/hashicorp/nomad.git", "", ""},
		"github.com/hashicorp/nomad//demo?ref=main":                                                       {"git", "https://github.com/hashicorp/nomad.git", "demo", ""},
		"git@github.com:hashicorp/nomad.git":                                                              {"git", "ssh://git@github.com/hashicorp/nomad.git", "", ""},
		"git::ssh://git@example.com/r.git":                                                                {"git", "ssh://git@example.com/r.git", "", ""},
		"s3::https://s3-eu-west-1.amazonaws.com/bucket/a.tgz?aws_access_key_id=a&aws_access_key_secret=b": {"s3", "https://s3-eu-west-1.amazonaws.com/bucket/a.tgz", "", "tar.gz"},
		"bucket.s3.eu-west-1.amazonaws.com/a.zip":                                                         {"s3", "https://bucket.s3.eu-west-1.amazonaws.com/a.zip", "", "zip"},
		"/opt/images/app.txz":                                                                             {"file", "file:///opt/images/app.txz", "", "tar.xz"},
		"oci://example.com:5000/shop/web:1.2.tar//sub?plain_http=true":                                    {"oci", "oci://example.com:5000/shop/web:1.2.tar", "sub", ""},
		"oci://example.com/web@sha256:" + zeros(64):                                                       {"oci", "oci://example.com/web@sha256:" + zeros(64), "", ""},
		"file:///opt/data":                                                                                {"file", "file:///opt/data", "", ""},
	} {
		s, err := artifacts.ParseSource(source, nil)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		from, address, subdir, archive := s.Parts()
		if got := [4]string{from, address, subdir, archive}; got != want {
			t.Errorf("%s is %q, want %q", source, got, want)
		}
	}
}

func zeros(n int) string { return strings.Repeat("0", n) }

func TestSourcesThatAreRefused(t *testing.T) {
	for source, code := range map[string]fleet.Code{
		"": fleet.CodeInvalid, "relative/path": fleet.CodeInvalid, "./x": fleet.CodeInvalid, "https://": fleet.CodeInvalid,
		"hg::https://example.com/r": fleet.CodeUnsupported, "gcs::https://example.com/r": fleet.CodeUnsupported,
		"oci::https://example.com/r": fleet.CodeInvalid, "oci://example.com": fleet.CodeInvalid, "oci://example.com/R": fleet.CodeInvalid,
		"oci://example.com/r:1?checksum=md5:" + zeros(32): fleet.CodeInvalid, "oci://example.com/r:1?filename=x": fleet.CodeInvalid,
		"oci://example.com/r:1?archive=tar": fleet.CodeInvalid, "oci://example.com/r:1?other=x": fleet.CodeInvalid, "oci://example.com/r:1?plain_http=yes": fleet.CodeInvalid, "oci://example.com/r@sha256:1": fleet.CodeInvalid,
		"oci://u:password@example.com/R":       fleet.CodeInvalid,
		"git::ext::sh -c id":                   fleet.CodeInvalid,
		"https://example.com/x?checksum=crc:1": fleet.CodeInvalid, "https://example.com/x?archive=rar": fleet.CodeInvalid,
		"git::https://example.com/r?ref=--upload-pack=x": fleet.CodeInvalid, "git::https://example.com/r?sshkey=%25": fleet.CodeInvalid,
		"s3::https://s3.amazonaws.com/b/k?aws_access_key_id=x": fleet.CodeInvalid, "https://example.com/x?filename=../y": fleet.CodeInvalid,
		"https://u:password@example.com/%zz": fleet.CodeInvalid,
	} {
		_, err := artifacts.ParseSource(source, nil)
		if fleet.CodeOf(err) != code {
			t.Errorf("%s: %v, want %s", source, err, code)
		}
		if err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("%s: the error tells a password: %v", source, err)
		}
	}
}

func TestKeyKeepsSecretsOutOfTheSource(t *testing.T) {
	s, err := artifacts.ParseSource("https://u:password@example.com/x", map[string]string{"checksum": "md5:" + zeros(32)})
	if err != nil {
		t.Fatal(err)
	}
	k := s.Key(map[string]string{"Authorization": "Bearer password"})
	other := s.Key(map[string]string{"Authorization": "Bearer other"})
	if strings.Contains(k.Source, "password") || k.ID() == other.ID() || k.Checksum == "" {
		t.Errorf("the key is %+v", k)
	}
}

// The examples of "Signature Calculations for the Authorization Header" in Amazon's S3 API reference.
func TestS3Signature(t *testing.T) {
	for address, want := range map[string]string{
		"https://examplebucket.s3.amazonaws.com/?lifecycle":           "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
		"https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J": "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
	} {
		req, err := http.NewRequest(http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		artifacts.SignS3(req, "us-east-1", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
			time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
		if got := req.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+want) {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func FuzzParseSource(f *testing.F) {
	f.Add("git::https://example.com/r.git//sub?ref=v1", "checksum", "md5:0")
	f.Add("s3::https://s3.amazonaws.com/b/k", "aws_access_key_id", "x")
	f.Fuzz(func(t *testing.T, source, name, value string) {
		s, err := artifacts.ParseSource(source, map[string]string{name: value})
		if err == nil {
			_ = s.Key(nil).ID() + s.String()
		}
	})
}
