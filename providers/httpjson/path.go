package httpjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/outbox-worker/outbox-worker/providers"
)

// segment is one part of a path between slashes: text, or a member of the payload.
type segment struct{ text, member string }

var (
	errPath      = errors.New("is not a path; give one such as /v1/charges, without query or fragment")
	plainSegment = regexp.MustCompile(`^[A-Za-z0-9._~!$&'()*+,;=:@-]+$`)
)

// parsePath accepts plain segments and whole segments {member}.
func parsePath(path string) ([]segment, error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil, errPath
	}
	var segments []segment
	for part := range strings.SplitSeq(rest, "/") {
		member, isMember := strings.CutPrefix(part, "{")
		member, closed := strings.CutSuffix(member, "}")
		switch {
		case isMember && closed && fieldName.MatchString(member):
			segments = append(segments, segment{member: member})
		case plainSegment.MatchString(part) && part != "." && part != "..":
			segments = append(segments, segment{text: part})
		default:
			return nil, fmt.Errorf("segment %q %w", part, errPath)
		}
	}
	return segments, nil
}

// render puts the payload's members in. A member that could leave its segment is
// refused, not just escaped: providers and proxies unescape before they route.
func render(segments []segment, payload map[string]json.RawMessage) (string, error) {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		if s.member == "" {
			b.WriteString(s.text)
			continue
		}
		value, ok := scalar(payload[s.member])
		if !ok || value == "" || value == "." || value == ".." || strings.ContainsAny(value, "/\\%?#") {
			return "", &providers.InvalidError{Path: "/" + s.member, Reason: "is part of the URL's path: want a string or an integer, without / \\ % ? #"}
		}
		b.WriteString(url.PathEscape(value))
	}
	return b.String(), nil
}
