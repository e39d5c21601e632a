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

// ReadManifests reads bytes as an index and as a manifest, and returns the number of its layers.
func ReadManifests(raw []byte) int {
	_, _ = choosePlatform(raw)
	m, err := parseManifest(raw)
	if err != nil {
		return 0
	}
	return len(m.Layers)
}

// Parts returns what a source was read as.
func (s *Source) Parts() (from, address, subdir, archive string) {
	return s.from, s.url.String(), s.subdir, s.archive
}
