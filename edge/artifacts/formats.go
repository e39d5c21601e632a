package artifacts

import (
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"skerry/fleet"
)

// formats are the archive formats by file name extension. The longest extension that matches counts.
var formats = map[string]string{
	"tar": "tar", "zip": "zip",
	"tar.gz": "tar.gz", "tgz": "tar.gz", "tar.bz2": "tar.bz2", "tbz2": "tar.bz2", "tar.xz": "tar.xz", "txz": "tar.xz",
	"tar.zst": "tar.zst", "tzst": "tar.zst",
	"gz": "gz", "bz2": "bz2", "xz": "xz", "zst": "zst",
}

// maxWindow bounds the memory that reading a compressed file may need.
const maxWindow = 64 << 20

// archiveFormat returns the format that the option archive names, or else the one of the file name's extension. It
// returns "" for a file that is no archive.
func archiveFormat(option, name string) (string, error) {
	switch option {
	case "":
		base := path.Base(name)
		for i := strings.IndexByte(base, '.'); i >= 0; {
			if format, ok := formats[base[i+1:]]; ok {
				return format, nil
			}
			next := strings.IndexByte(base[i+1:], '.')
			if next < 0 {
				break
			}
			i += 1 + next
		}
		return "", nil
	case "false", "0":
		return "", nil
	}
	format, ok := formats[option]
	if !ok {
		return "", fleet.Errorf(fleet.CodeInvalid, "archive %q of an artifact is no known format", option).
			WithHint("it is false, zip, tar, tar.gz, tar.bz2, tar.xz, tar.zst, gz, bz2, xz or zst")
	}
	return format, nil
}

// isTree reports whether a format holds several files with names.
func isTree(format string) bool { return format == "zip" || strings.HasPrefix(format, "tar") }

// decompress returns a reader of the decompressed content. For a compressed tar it yields the tar.
func decompress(format string, f *os.File) (io.Reader, func(), error) {
	none := func() {}
	switch strings.TrimPrefix(format, "tar.") {
	case "gz":
		r, err := gzip.NewReader(f)
		return r, none, err
	case "bz2":
		return bzip2.NewReader(f), none, nil
	case "xz":
		if err := checkWindowXZ(f); err != nil {
			return nil, none, err
		}
		r, err := xz.NewReader(f)
		return r, none, err
	case "zst":
		r, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, none, err
		}
		return r, r.Close, nil
	}
	return f, none, nil // tar
}

// checkWindowXZ refuses a file whose first block needs a large dictionary: the reader would allocate any size.
func checkWindowXZ(f *os.File) error {
	head := make([]byte, 64)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head = head[:n]
	const streamHeader = 12
	if len(head) < streamHeader+2 || head[streamHeader] == 0 {
		return nil // no block, or no xz file: the xz reader returns the error
	}
	flags, rest := head[streamHeader+1], head[streamHeader+2:]
	for _, bit := range []byte{0x40, 0x80} { // optional sizes, encoded with a variable length
		for flags&bit != 0 && len(rest) > 0 {
			more := rest[0]&0x80 != 0
			rest = rest[1:]
			if !more {
				break
			}
		}
	}
	if len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 {
		return errors.New("its filter is not LZMA2 alone")
	}
	if bits := uint(rest[2]); bits > 40 || uint64(2|bits&1)<<(bits/2+11) > maxWindow {
		return errors.New("its dictionary is larger than 64 MiB")
	}
	return nil
}
