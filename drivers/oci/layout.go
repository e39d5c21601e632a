package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry/fleet"
)

const (
	maxDocument = 4 << 20 // bytes of an index, a manifest or a configuration, as the distribution specification recommends
	maxLayers   = 128
	maxIndexes  = 2 // an index may name an index for each platform
)

// image is an image in an OCI layout.
type image struct {
	digest digest.Digest // of the manifest
	config ocispec.ImageConfig
	layers []ocispec.Descriptor // the lowest first
}

// readLayout reads the only image for this machine in an OCI layout. It verifies the digests of all that it reads.
func readLayout(layout *os.Root) (*image, error) {
	raw, err := readFile(layout, ocispec.ImageIndexFile)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "it is no OCI layout: %w", err).WithHint("write the folder of an OCI layout, which has an %s", ocispec.ImageIndexFile)
	}
	var manifest ocispec.Manifest
	chosen, err := chooseManifest(layout, raw, maxIndexes)
	if err == nil {
		err = readDocument(layout, chosen, &manifest)
	}
	if err != nil {
		return nil, err
	}
	if len(manifest.Layers) == 0 || len(manifest.Layers) > maxLayers {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its manifest has %d layers, and from 1 to %d are taken", len(manifest.Layers), maxLayers)
	}
	for i, l := range manifest.Layers {
		if _, err := blobName(l.Digest); err != nil || l.Size < 0 {
			return nil, fleet.Errorf(fleet.CodeInvalid, "layer %d of its manifest has the digest %.80q and %d bytes", i+1, l.Digest, l.Size)
		}
		if _, known := isCompressed(l.MediaType); !known {
			return nil, fleet.Errorf(fleet.CodeInvalid, "layer %d of its manifest is of type %.80q", i+1, l.MediaType).
				WithHint("layers are of type tar or tar+gzip: convert the image, for example with skopeo copy --dest-compress-format gzip")
		}
	}
	var described ocispec.Image
	if err := readDocument(layout, manifest.Config, &described); err != nil {
		return nil, err
	}
	if described.OS != "" && described.OS != "linux" || described.Architecture != "" && described.Architecture != runtime.GOARCH {
		return nil, fleet.Errorf(fleet.CodeInvalid, "it is for %.40s/%.40s, and this machine is linux/%s", described.OS, described.Architecture, runtime.GOARCH)
	}
	return &image{chosen.Digest, described.Config, manifest.Layers}, nil
}

// chooseManifest returns the only manifest for this machine in an index.
func chooseManifest(layout *os.Root, raw []byte, indexes int) (ocispec.Descriptor, error) {
	var index ocispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return ocispec.Descriptor{}, fleet.Errorf(fleet.CodeInvalid, "its index is malformed: %w", err)
	}
	var fitting []ocispec.Descriptor
	for _, m := range index.Manifests {
		if p := m.Platform; p == nil || p.OS == "linux" && p.Architecture == runtime.GOARCH {
			fitting = append(fitting, m)
		}
	}
	if len(fitting) != 1 {
		return ocispec.Descriptor{}, fleet.Errorf(fleet.CodeInvalid, "its index has %d images for linux/%s, of %d; it must have one", len(fitting), runtime.GOARCH, len(index.Manifests))
	}
	if !strings.Contains(fitting[0].MediaType, "index") && !strings.Contains(fitting[0].MediaType, "manifest.list") {
		return fitting[0], nil
	}
	if indexes == 0 {
		return ocispec.Descriptor{}, fleet.Errorf(fleet.CodeInvalid, "its index names an index, which names another one")
	}
	inner, err := readBlob(layout, fitting[0])
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return chooseManifest(layout, inner, indexes-1)
}

// isCompressed reports whether a layer of a media type is compressed by gzip, and whether the type is known.
func isCompressed(mediaType string) (gzipped, known bool) {
	switch {
	case strings.HasSuffix(mediaType, ".tar+gzip"), strings.HasSuffix(mediaType, ".tar.gzip"):
		return true, true
	case strings.HasSuffix(mediaType, ".tar"):
		return false, true
	}
	return false, false
}

// readDocument reads a JSON document of a layout.
func readDocument(layout *os.Root, d ocispec.Descriptor, into any) error {
	raw, err := readBlob(layout, d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "its blob %s is malformed: %w", d.Digest, err)
	}
	return nil
}

// readBlob reads a small blob of a layout and verifies its digest.
func readBlob(layout *os.Root, d ocispec.Descriptor) ([]byte, error) {
	name, err := blobName(d.Digest)
	if err != nil {
		return nil, err
	}
	raw, err := readFile(layout, name)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its blob %s cannot be read: %w", d.Digest, err)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != d.Digest.Encoded() {
		return nil, errWrongBlob(d.Digest)
	}
	return raw, nil
}

// blobName returns the name of a blob in a layout.
func blobName(d digest.Digest) (string, error) {
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return "", fleet.Errorf(fleet.CodeInvalid, "the digest %.80q is none of sha256", string(d))
	}
	return path.Join(ocispec.ImageBlobsDir, "sha256", d.Encoded()), nil
}

func errWrongBlob(d digest.Digest) error {
	return fleet.Errorf(fleet.CodeInvalid, "its blob %s is damaged: it has another digest", d).WithHint("fetch the image again: skerry alloc stop replaces the allocation")
}

// openFile opens a regular file of a layout.
func openFile(layout *os.Root, name string) (*os.File, error) {
	info, err := layout.Stat(name) // before it is opened: opening a FIFO waits
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		return nil, err
	}
	return layout.Open(name)
}

// readFile reads a small file of a layout.
func readFile(layout *os.Root, name string) (raw []byte, err error) {
	f, err := openFile(layout, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	raw, err = io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(raw) > maxDocument {
		err = fmt.Errorf("%s has more than %d bytes", name, maxDocument)
	}
	return raw, err
}
