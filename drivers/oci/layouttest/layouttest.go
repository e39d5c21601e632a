// Package layouttest writes OCI layouts for tests. It keeps nothing and starts no goroutine.
package layouttest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// File is a file of a layer. A name that ends with / is a folder.
type File struct {
	Name, Content string
	Link          string // target of a symbolic link
	Hard          string // target of a hard link
	Kind          byte   // as in a tar; 0: as the other fields say
	Mode          int64  // 0: 0755
}

// Layer returns the archive of a layer, whose files belong to this process's user.
func Layer(files ...File) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Content)), Typeflag: tar.TypeReg, Uid: os.Getuid(), Gid: os.Getgid()}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		switch {
		case f.Kind != 0:
			h.Typeflag = f.Kind
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		case f.Hard != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.Hard
		case f.Name[len(f.Name)-1] == '/':
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(f.Content)); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// Image is an image of a layout.
type Image struct {
	Config       map[string]any // Env, WorkingDir, User, Entrypoint, Cmd
	Architecture string         // "": this machine's
	Layers       [][]byte       // the lowest first; each other one is compressed
	MediaType    string         // of the layers; "": as they are
}

// Write writes an image as a layout into a folder. It returns the digest of the manifest.
func Write(dir string, i Image) (string, error) {
	var failed error
	blob := func(b []byte) map[string]any {
		sum := sha256.Sum256(b)
		name := filepath.Join(dir, "blobs", "sha256", hex.EncodeToString(sum[:]))
		failed = errors.Join(failed, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, 0o644))
		return map[string]any{"digest": "sha256:" + filepath.Base(name), "size": len(b)}
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		failed = errors.Join(failed, err)
		return b
	}
	const kind = "application/vnd.oci.image."
	typed := func(d map[string]any, mediaType string) map[string]any {
		d["mediaType"] = mediaType
		return d
	}
	var layers []any
	for n, l := range i.Layers {
		mediaType := kind + "layer.v1.tar"
		if n%2 == 1 {
			var zipped bytes.Buffer
			z := gzip.NewWriter(&zipped)
			_, err := z.Write(l)
			failed = errors.Join(failed, err, z.Close())
			l, mediaType = zipped.Bytes(), mediaType+"+gzip"
		}
		if i.MediaType != "" {
			mediaType = i.MediaType
		}
		layers = append(layers, typed(blob(l), mediaType))
	}
	if i.Architecture == "" {
		i.Architecture = runtime.GOARCH
	}
	config := typed(blob(encode(map[string]any{"os": "linux", "architecture": i.Architecture, "config": i.Config})), kind+"config.v1+json")
	manifest := typed(blob(encode(map[string]any{"schemaVersion": 2, "config": config, "layers": layers})), kind+"manifest.v1+json")
	index := encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	failed = errors.Join(failed, os.WriteFile(filepath.Join(dir, "index.json"), index, 0o644),
		os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
	return fmt.Sprint(manifest["digest"]), failed
}
