package smtp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime/quotedprintable"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outbox-worker/outbox-worker/providers"
)

// message is Request.Data: a mail without its Date, which is the time of sending and the
// only thing that differs between two attempts.
type message struct {
	from, to  address
	messageID string
	header    []byte
	body      []byte
	utf8      bool // some address needs SMTPUTF8
}

// content is what follows DATA.
func (m *message) content(now time.Time) []byte {
	date := "Date: " + now.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700") + "\r\n"
	return slices.Concat([]byte(date), m.header, []byte("\r\n"), m.body)
}

// payload is the intent's, checked.
type payload struct {
	to       address
	subject  string
	text     string
	html     string
	fromName string
	replyTo  *address
}

var (
	members  = []string{"to", "subject", "text", "html", "from_name", "reply_to"}
	required = []string{"to", "subject", "text"}

	referencePattern = regexp.MustCompile(`^[0-9a-v]{32}$`)
)

func invalid(member, reason string) error {
	return &providers.InvalidError{Path: "/" + member, Reason: reason}
}

// parsePayload is strict: a misspelt cc must not be a mail that somebody never gets.
func parsePayload(data json.RawMessage) (payload, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil || raw == nil {
		return payload{}, &providers.InvalidError{Reason: "want a JSON object"}
	}
	text := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !slices.Contains(members, name) {
			return payload{}, invalid(pointerToken(name), "is not a member of a mail; those are "+strings.Join(members, ", "))
		}
		var s *string
		if err := json.Unmarshal(raw[name], &s); err != nil || s == nil {
			return payload{}, invalid(name, "want a string")
		}
		text[name] = *s
	}
	for _, name := range required {
		if text[name] == "" {
			return payload{}, invalid(name, "is required")
		}
	}
	p := payload{subject: text["subject"], text: text["text"], html: text["html"], fromName: text["from_name"]}
	return p, p.check(text)
}

func (p *payload) check(text map[string]string) (err error) {
	if reason := checkLine(p.subject, maxSubject); reason != "" {
		return invalid("subject", reason)
	}
	if reason := checkLine(p.fromName, maxName); reason != "" {
		return invalid("from_name", reason)
	}
	for _, name := range []string{"text", "html"} {
		if strings.ContainsRune(text[name], 0) || !utf8.ValidString(text[name]) {
			return invalid(name, "has a U+0000 or is not valid UTF-8")
		}
	}
	if p.to, err = parseAddress(text["to"]); err != nil {
		return invalid("to", err.Error())
	}
	if text["reply_to"] != "" {
		replyTo, err := parseAddress(text["reply_to"])
		if err != nil {
			return invalid("reply_to", err.Error())
		}
		p.replyTo = &replyTo
	}
	return nil
}

// pointerToken escapes a name for a JSON Pointer.
func pointerToken(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// render makes the mail: headers that cannot be injected into, bodies in 7-bit
// quoted-printable.
func (s *settings) render(in providers.Intent, p payload) *message {
	m := &message{from: s.from, to: p.to, messageID: "<" + in.Reference + "@" + s.Domain + ">"}
	name := p.fromName
	if name == "" {
		name = s.fromName
	}
	var h bytes.Buffer
	put := func(name, value string) { fmt.Fprintf(&h, "%s: %s\r\n", name, value) }
	put("From", mailbox(name, s.from))
	put("To", mailbox("", p.to))
	m.utf8 = !s.from.ascii() || !p.to.ascii()
	if p.replyTo != nil {
		put("Reply-To", mailbox("", *p.replyTo))
		m.utf8 = m.utf8 || !p.replyTo.ascii()
	}
	put("Subject", headerText(p.subject))
	put("Message-ID", m.messageID)
	put("MIME-Version", "1.0")
	var b bytes.Buffer
	if p.html == "" {
		putPart(&h, &b, "plain", p.text)
	} else {
		// Quoted-printable text never contains "=_", so no part can contain the boundary.
		boundary := "=_" + in.Reference
		put("Content-Type", `multipart/alternative; boundary="`+boundary+`"`)
		for _, part := range [][2]string{{"plain", p.text}, {"html", p.html}} {
			b.WriteString("--" + boundary + "\r\n")
			var body bytes.Buffer
			putPart(&b, &body, part[0], part[1])
			b.WriteString("\r\n")
			b.Write(body.Bytes())
			b.WriteString("\r\n")
		}
		b.WriteString("--" + boundary + "--\r\n")
	}
	m.header, m.body = h.Bytes(), b.Bytes()
	return m
}

// Every end of line is given as LF: after a lone CR, quotedprintable swallows the next LF.
var ends = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// putPart writes a text's headers and body; writes to buffers do not fail.
func putPart(h, b *bytes.Buffer, subtype, text string) {
	fmt.Fprintf(h, "Content-Type: text/%s; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n", subtype)
	w := quotedprintable.NewWriter(b)
	_, _ = w.Write([]byte(ends.Replace(text)))
	_ = w.Close()
}
