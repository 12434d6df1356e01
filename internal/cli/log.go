package cli

import (
	"io"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"
)

// Log formats.
const (
	LogAuto = "auto"
	LogText = "text"
	LogJSON = "json"
)

// Logger writes to w, the Env's standard error: coloured lines on a terminal, one JSON
// object per line otherwise, or as cfg.Format says.
func (e Env) Logger(w io.Writer, cfg Log) *slog.Logger {
	if cfg.Format == LogText || cfg.Format == LogAuto && Terminal(w) {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: cfg.Level, TimeFormat: time.TimeOnly + ".000", NoColor: !e.Color(w)}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.Level, ReplaceAttr: inWords}))
}

// inWords writes durations as "1.5s", not as a number of nanoseconds.
func inWords(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
