package artifacts

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// emptyHash is the sha256, in hex, of an empty request body.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// maxS3Error bounds the description of an error that is read, and maxS3Message the part of it that is shown.
const (
	maxS3Error   = 64 << 10
	maxS3Message = 200
)

// signS3 signs a request without a body as version 4 of AWS's signature wants it. Headers that are set later,
// such as Range, are not signed.
func (s *Source) signS3(req *http.Request, now time.Time) {
	req.URL.RawPath = canonicalPath(req.URL) // S3 takes a plus sign in a path for a space
	if s.accessKey == "" {
		return
	}
	now = now.UTC()
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	req.Header.Set("X-Amz-Date", stamp)
	req.Header.Set("X-Amz-Content-Sha256", emptyHash)
	if s.sessionToken != "" {
		req.Header.Set("X-Amz-Security-Token", s.sessionToken)
	}
	signed, headers := canonicalHeaders(req)
	query := strings.ReplaceAll(req.URL.Query().Encode(), "+", "%20")
	request := strings.Join([]string{req.Method, req.URL.RawPath, query, headers, signed, emptyHash}, "\n")
	sum := sha256.Sum256([]byte(request))
	scope := day + "/" + s.region + "/s3/aws4_request"
	key := []byte("AWS4" + s.secretKey)
	for _, part := range []string{day, s.region, "s3", "aws4_request"} {
		key = hmacOf(key, part)
	}
	signature := hmacOf(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(sum[:]))
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+s.accessKey+"/"+scope+
		", SignedHeaders="+signed+", Signature="+hex.EncodeToString(signature))
}

func hmacOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonicalPath escapes all but unreserved characters and slashes, as the signature wants it.
func canonicalPath(u *url.URL) string {
	if u.Path == "" {
		return "/"
	}
	parts := strings.Split(u.Path, "/")
	for i, p := range parts {
		parts[i] = escapeS3(p)
	}
	return strings.Join(parts, "/")
}

// canonicalHeaders returns the headers that have to be signed, the host and all of Amazon's: their names, and their lines.
func canonicalHeaders(req *http.Request) (names, lines string) {
	values := map[string]string{"host": req.Host}
	for name, v := range req.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") {
			values[name] = strings.Join(strings.Fields(strings.Join(v, ",")), " ")
		}
	}
	sorted := slices.Sorted(maps.Keys(values))
	for _, name := range sorted {
		lines += name + ":" + values[name] + "\n"
	}
	return strings.Join(sorted, ";"), lines
}

func escapeS3(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// s3Refusal is the part of S3's description of an error that is shown.
type s3Refusal struct {
	Code, Message string
	Region        string // the right one, if the request has another one
}

// explainS3 returns the error for an answer that is no content, with what the server says and what to do.
func (s *Source) explainS3(resp *http.Response) error {
	var said s3Refusal
	text := "the server answers " + resp.Status
	if xml.NewDecoder(io.LimitReader(resp.Body, maxS3Error)).Decode(&said) == nil && said.Code != "" {
		why := said.Code + ": " + said.Message
		text += ": " + strings.ToValidUTF8(why[:min(len(why), maxS3Message)], "")
	}
	err := fleet.Errorf(fleet.CodeUnavailable, "%s", text)
	switch region := cmp.Or(said.Region, resp.Header.Get("X-Amz-Bucket-Region")); {
	case region != "" && region != s.region && len(region) < maxS3Message:
		return err.WithHint("write the option region = %q", region)
	case said.Code == "RequestTimeTooSkewed":
		return err.WithHint("set the clock of the edge")
	case resp.StatusCode == http.StatusForbidden && s.accessKey == "":
		return err.WithHint("write the options aws_access_key_id and aws_access_key_secret, or let everybody read the object")
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusBadRequest:
		return err.WithHint("check the options aws_access_key_id, aws_access_key_secret, aws_access_token and region, and that the key may read the object")
	case resp.StatusCode == http.StatusNotFound:
		return err.WithHint("check the bucket, the name of the object, and the option version")
	}
	return err
}
