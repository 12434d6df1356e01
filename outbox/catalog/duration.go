package catalog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is text in YAML and JSON: "1m30s".
type Duration struct{ time.Duration }

// maxDuration keeps sums of durations far from overflow: about eleven years.
const maxDuration = 100_000 * time.Hour

// MarshalText gives the form that ParseDuration reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote; the error is time.ParseDuration's.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// parseDuration reads a duration that a file may hold.

func parseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return Duration{}, fmt.Errorf("%s is not a duration", strconv.Quote(text))
	case d < 0:
		return Duration{}, fmt.Errorf("%s is negative", text)
	case d > maxDuration:
		return Duration{}, fmt.Errorf("%s is longer than %s", text, maxDuration)
	}
	return Duration{d}, nil
}

func seconds(n int) Duration { return Duration{time.Duration(n) * time.Second} }

// String drops the zeros of time.Duration's form: 24h, not 24h0m0s.
func (d Duration) String() string {
	text := d.Duration.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
