package artifacts

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// emptyHash is the sha256, in hex, of an empty request body.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// signS3 signs a request without a body as version 4 of AWS's signature wants it. Headers that are set later,
// such as Range, are not signed.
func (s *Source) signS3(req *http.Request, now time.Time) {
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
	names, headers := []string{"host"}, "host:"+req.URL.Host+"\n"
	for _, name := range []string{"X-Amz-Content-Sha256", "X-Amz-Date", "X-Amz-Security-Token"} {
		if v := req.Header.Get(name); v != "" {
			names = append(names, strings.ToLower(name))
			headers += strings.ToLower(name) + ":" + v + "\n"
		}
	}
	signed := strings.Join(names, ";")
	request := strings.Join([]string{req.Method, canonicalPath(req.URL), canonicalQuery(req.URL), headers, signed, emptyHash}, "\n")
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

func canonicalQuery(u *url.URL) string {
	var pairs []string
	for k, values := range u.Query() {
		for _, v := range values {
			pairs = append(pairs, escapeS3(k)+"="+escapeS3(v))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

func escapeS3(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
