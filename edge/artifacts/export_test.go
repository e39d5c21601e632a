package artifacts

import (
	"net/http"
	"time"
)

// SignS3 signs a request with keys.
func SignS3(req *http.Request, region, accessKey, secretKey string, now time.Time) {
	s := Source{region: region, accessKey: accessKey, secretKey: secretKey}
	s.signS3(req, now)
}

// Parts returns what a source was read as.
func (s *Source) Parts() (from, address, subdir, archive string) {
	return s.from, s.url.String(), s.subdir, s.archive
}
