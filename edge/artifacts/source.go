package artifacts

import (
	"encoding/base64"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"oras.land/oras-go/v2/registry"

	"skerry/edge/store"
	"skerry/fleet"
	"skerry/internal/redact"
)

// Ways to fetch.
const (
	fromHTTP = "http" // and https
	fromFile = "file"
	fromGit  = "git"
	fromS3   = "s3"
	fromOCI  = "oci"
)

// Source is a source of the job file, with its options, as go-getter writes them: FORCED::URL//SUBDIR?OPTION=VALUE.
type Source struct {
	from     string
	url      *url.URL // without the options that takeOptions removes
	path     string   // of a file on this edge
	subdir   string   // the folder of the archive or repository to use; "" means all of it
	checksum string   // as store.ParseChecksum returns it
	archive  string   // format of the archive; "" means no archive
	filename string   // name of the file; "" means that of the URL

	ref    string // a git branch, tag or commit
	sshKey []byte // private key for git over ssh

	region, accessKey, secretKey, sessionToken string // of s3

	image     registry.Reference // of oci
	plainHTTP bool               // of oci
}

var (
	forcedGetter = regexp.MustCompile(`^([A-Za-z0-9]+)::(.+)$`)
	scpAddress   = regexp.MustCompile(`^(?:([a-zA-Z0-9_.-]+)@)([^:/]+):(.+)$`)
	gitHosts     = []string{"github.com/", "gitlab.com/", "bitbucket.org/"}
	s3Host       = regexp.MustCompile(`^(?:(.+)\.)?s3(?:[.-](?:dualstack\.)?([a-z0-9-]+))?\.amazonaws\.com$`)
)

// ParseSource parses a source with the options of its block. Its errors are fleet.CodeInvalid, or
// fleet.CodeUnsupported for a getter of go-getter that this release does not have.
func ParseSource(source string, options map[string]string) (Source, error) {
	s := Source{}
	address := strings.TrimSpace(source)
	forced := ""
	if m := forcedGetter.FindStringSubmatch(address); m != nil {
		forced, address = m[1], m[2]
	}
	address, subdir := cutSubdir(address)
	s.subdir = subdir
	forced, address, s.subdir = detectGetter(forced, address, s.subdir)
	u, err := url.Parse(address)
	if err != nil {
		return s, fleet.Errorf(fleet.CodeInvalid, "artifact source %q is no address", redact.Address(source)).
			WithHint("write https://HOST/FILE, git::https://HOST/REPOSITORY, s3::https://HOST/BUCKET/FILE, oci://HOST/REPOSITORY:TAG or an absolute path")
	}
	if s.from, err = getterOf(forced, u, source); err != nil {
		return s, err
	}
	query := u.Query()
	for k, v := range options {
		query.Set(k, v)
	}
	if err := s.takeOptions(query, u); err != nil {
		return s, err
	}
	u.RawQuery = query.Encode()
	s.url = u
	if s.from == fromFile {
		s.path, s.url = u.Path, &url.URL{Scheme: "file", Path: u.Path}
		if !path.IsAbs(s.path) {
			return s, fleet.Errorf(fleet.CodeInvalid, "artifact source %q is no absolute path on the edge", redact.Address(source))
		}
	}
	if s.from == fromHTTP && u.Host == "" {
		return s, fleet.Errorf(fleet.CodeInvalid, "artifact source %q names no host", redact.Address(source))
	}
	return s, nil
}

// cutSubdir cuts the folder after "//" off an address, as go-getter does.
func cutSubdir(address string) (string, string) {
	from := 0
	if i := strings.Index(address, "://"); i >= 0 {
		from = i + len("://")
	}
	rest, query, hasQuery := strings.Cut(address[from:], "?")
	i := strings.Index(rest, "//")
	if i < 0 || from == 0 && i == 0 {
		return address, ""
	}
	subdir := strings.Trim(rest[i+2:], "/")
	address = address[:from] + rest[:i]
	if hasQuery {
		address += "?" + query
	}
	return address, subdir
}

// detectGetter completes an address without a scheme: one of a known host, of git over ssh, or a path.
func detectGetter(forced, address, subdir string) (string, string, string) {
	if strings.Contains(address, "://") {
		return forced, address, subdir
	}
	if m := scpAddress.FindStringSubmatch(address); m != nil && (forced == "" || forced == fromGit) {
		return fromGit, "ssh://" + m[1] + "@" + m[2] + "/" + m[3], subdir
	}
	for _, host := range gitHosts {
		if !strings.HasPrefix(address, host) {
			continue
		}
		plain, query, hasQuery := strings.Cut(address, "?")
		parts := strings.SplitN(plain, "/", 4)
		if len(parts) == 4 && subdir == "" { // github.com/USER/REPOSITORY/FOLDER
			subdir = parts[3]
		}
		address = "https://" + strings.Join(parts[:min(len(parts), 3)], "/")
		if !strings.HasSuffix(address, ".git") {
			address += ".git"
		}
		if hasQuery {
			address += "?" + query
		}
		return fromGit, address, subdir
	}
	if host, _, ok := strings.Cut(address, "/"); ok && s3Host.MatchString(host) && forced == "" {
		return fromS3, "https://" + address, subdir
	}
	if strings.HasPrefix(address, "/") {
		return forced, "file://" + address, subdir
	}
	if forced == fromS3 || forced == fromGit || strings.HasPrefix(forced, "http") {
		return forced, "https://" + address, subdir
	}
	return forced, address, subdir
}

// getterOf returns the getter for an address.
func getterOf(forced string, u *url.URL, source string) (string, error) {
	name := forced
	if name == "" {
		name = u.Scheme
	}
	switch name {
	case "http", "https":
		if u.Scheme != "http" && u.Scheme != "https" {
			break
		}
		return fromHTTP, nil
	case "file":
		return fromFile, nil
	case "git", "ssh":
		if strings.HasPrefix(u.Host, "-") || strings.HasPrefix(u.Path, "-") {
			break
		}
		switch u.Scheme {
		case "http", "https", "ssh", "git", "file":
			return fromGit, nil
		}
	case "s3":
		if u.Scheme == "http" || u.Scheme == "https" {
			return fromS3, nil
		}
	case fromOCI:
		if u.Scheme == fromOCI {
			return fromOCI, nil
		}
	case "hg", "gcs", "smb", "ftp", "sftp":
		return "", fleet.Errorf(fleet.CodeUnsupported, "artifact source %q: %s is not fetched", redact.Address(source), name).
			WithHint("offer it over https, git, s3 or oci, or load it with 'store load'")
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "artifact source %q: it is not known how to fetch that", redact.Address(source)).
		WithHint("write https://HOST/FILE, git::https://HOST/REPOSITORY, s3::https://HOST/BUCKET/FILE, oci://HOST/REPOSITORY:TAG or an absolute path")
}

// takeOptions moves Skerry's options and those of the getter from the query into s.
func (s *Source) takeOptions(query url.Values, u *url.URL) (err error) {
	take := func(name string) string {
		v := query.Get(name)
		query.Del(name)
		return v
	}
	if text := take("checksum"); text != "" {
		if s.checksum, err = store.ParseChecksum(text); err != nil {
			return err
		}
	}
	archive := take("archive")
	if s.archive, err = archiveFormat(archive, u.Path); err != nil {
		return err
	}
	s.filename = take("filename")
	if s.filename != "" && (s.filename != path.Base(s.filename) || s.filename == "." || s.filename == "..") {
		return fleet.Errorf(fleet.CodeInvalid, "filename %q of an artifact is not the name of a file", s.filename)
	}
	switch s.from {
	case fromGit:
		return s.takeGitOptions(take)
	case fromS3:
		return s.takeS3Options(take, query, u)
	case fromOCI:
		s.archive = ""
		if err := s.takeOCIOptions(take, u, archive); err != nil {
			return err
		}
		for name := range query {
			return fleet.Errorf(fleet.CodeInvalid, "an artifact from oci has no option %q", name)
		}
	}
	return nil
}

func (s *Source) takeGitOptions(take func(string) string) (err error) {
	s.archive = ""
	s.ref = take("ref")
	if strings.HasPrefix(s.ref, "-") {
		return fleet.Errorf(fleet.CodeInvalid, "ref %q of an artifact is not a git branch, tag or commit", s.ref)
	}
	if depth := take("depth"); depth != "" { // checked and otherwise unused: cloneGit fetches a single commit
		if n, err := strconv.Atoi(depth); err != nil || n < 0 {
			return fleet.Errorf(fleet.CodeInvalid, "depth %q of an artifact is not a number of commits", depth)
		}
	}
	if key := take("sshkey"); key != "" {
		if s.sshKey, err = base64.StdEncoding.DecodeString(strings.ReplaceAll(key, " ", "+")); err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "sshkey of an artifact is not base64").WithHint("write base64 -w0 KEYFILE")
		}
	}
	return nil
}

func (s *Source) takeS3Options(take func(string) string, query url.Values, u *url.URL) error {
	s.region, s.accessKey, s.secretKey = take("region"), take("aws_access_key_id"), take("aws_access_key_secret")
	s.sessionToken = take("aws_access_token")
	if version := take("version"); version != "" { // the name that go-getter has for it
		query.Set("versionId", version)
	}
	if take("aws_profile") != "" {
		return fleet.Errorf(fleet.CodeUnsupported, "aws_profile of an artifact is not supported").
			WithHint("write aws_access_key_id and aws_access_key_secret")
	}
	if (s.accessKey == "") != (s.secretKey == "") {
		return fleet.Errorf(fleet.CodeInvalid, "an artifact from s3 needs aws_access_key_id and aws_access_key_secret, or neither")
	}
	if m := s3Host.FindStringSubmatch(u.Hostname()); s.region == "" && m != nil {
		s.region = m[2]
	}
	if s.region == "" {
		s.region = "us-east-1"
	}
	return nil
}

// Key returns the store's key for the source. Headers and credentials are among its options.
func (s *Source) Key(headers map[string]string) store.Key {
	u := *s.url
	options := map[string]string{}
	add := func(name, value string) {
		if value != "" {
			options[name] = value
		}
	}
	if u.User != nil {
		add("user", u.User.String())
		u.User = nil
	}
	add("ref", s.ref)
	add("sshkey", string(s.sshKey))
	add("access_key", s.accessKey)
	for k, v := range headers {
		options["header "+k] = v
	}
	source := u.String()
	if s.from == fromGit || s.from == fromS3 {
		source = s.from + "::" + source
	}
	if len(options) == 0 {
		options = nil
	}
	return store.Key{Source: source, Options: options, Checksum: s.checksum}
}

// String returns the source without credentials and without its query.
func (s *Source) String() string {
	source := s.Key(nil).String()
	if s.subdir != "" {
		source += "//" + s.subdir
	}
	return source
}

// fileName returns the name of the file at the end of the address.
func (s *Source) fileName() string {
	if s.filename != "" {
		return s.filename
	}
	name := path.Base(s.url.Path)
	if name == "." || name == "/" || name == ".." {
		return "artifact"
	}
	return name
}
