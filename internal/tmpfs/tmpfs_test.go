package tmpfs_test

import (
	"slices"
	"testing"

	"skerry/internal/tmpfs"
)

// TestParseMounts reads lines with and without tags, with escaped letters, and lines that are none.
func TestParseMounts(t *testing.T) {
	lines, shared := tmpfs.ParseMounts(`25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 25 0:31 / /var/lib/a\040b/secrets rw,nosuid master:3 - tmpfs skerry:x\134y rw,size=1024k
41 25 0:32 / /one rw - tmpfs none rw
42 25 0:33 / /both rw shared:7 master:1 - tmpfs none rw
43 25 0:33 / /cut rw shared:7
44 25 0:33 - tmpfs

`)
	want := [][3]string{
		{"/", "ext4", "/dev/sda1"}, {"/var/lib/a b/secrets", "tmpfs", `skerry:x\y`}, {"/one", "tmpfs", "none"}, {"/both", "tmpfs", "none"},
	}
	if !slices.Equal(lines, want) {
		t.Errorf("mounts %q, want %q", lines, want)
	}
	if !slices.Equal(shared, []bool{true, false, false, false}) {
		t.Errorf("shared with the machine: %v", shared)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
	f.Add(`40 25 0:31 / /a\04 rw - tmpfs \400 rw`)
	f.Fuzz(func(t *testing.T, text string) {
		lines, _ := tmpfs.ParseMounts(text)
		for _, l := range lines {
			if l[1] == "" || l[0] == "" {
				t.Errorf("%q is read as %q", text, l)
			}
		}
	})
}
