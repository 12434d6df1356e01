package cli

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Build says which program this is, from what the Go tool stamped into it.
type Build struct {
	Version  string `json:"version"`            // the module's, or "(devel)"
	Revision string `json:"revision,omitempty"` // of the repository
	Time     string `json:"time,omitempty"`     // of that revision, RFC 3339
	Modified bool   `json:"modified,omitempty"` // built with changes on top of it
	Go       string `json:"go"`
}

// ReadBuild reads the build information of the running program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "(devel)"}
	}
	b := Build{Version: info.Main.Version, Go: info.GoVersion}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is one line: version, revision, its time and Go's version.
func (b Build) String() string {
	var about []string
	if b.Revision != "" {
		rev := b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			rev += " with changes"
		}
		about = append(about, rev)
	}
	if b.Time != "" {
		about = append(about, b.Time)
	}
	return fmt.Sprintf("%s (%s)", b.Version, strings.Join(append(about, b.Go), ", "))
}
