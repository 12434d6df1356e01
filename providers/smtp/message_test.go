package smtp_test

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

// delivered sends in through a server and parses what arrived.
func delivered(t testing.TB, s *fakeServer, p providers.Provider, in providers.Intent) *mail.Message {
	t.Helper()
	r, err := p.Prepare(in)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Send(t.Context(), r, allow); a.Kind != providers.KindAccepted {
		t.Fatalf("got %+v", a)
	}
	mails := s.mails()
	raw := mails[len(mails)-1]
	for line := range strings.SplitSeq(raw, "\r\n") {
		if len(line) > 998 || strings.ContainsAny(line, "\r\n\x00") {
			t.Fatalf("not a line of a mail: %q", line)
		}
	}
	m, err := mail.ReadMessage(strings.NewReader(raw))
	if err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return m
}

func decodeHeader(t testing.TB, value string) string {
	t.Helper()
	s, err := new(mime.WordDecoder).DecodeHeader(value)
	if err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	return s
}

func decodeBody(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(quotedprintable.NewReader(r))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "\r\n")
}

func TestAMailArrivesAsItWasGiven(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string]string{"EHLO": "250-hello\r\n250-8BITMIME\r\n250 SMTPUTF8"})
	p := newProvider(t, config(s.address))
	const text = ".\r\n..\r\nFrom here = \u00fc\u0434\u5b57 \U0001f600 trailing \t\r\n\r\nlast"
	m := delivered(t, s, p, receipt(1,
		"to", "jürgen@example.com", "subject", "Bestätigung für Jürgen: 240,00 € — danke und bis zum nächsten Mal in unserem Laden",
		"text", text, "from_name", `Käse & "Wein"`, "reply_to", "hilfe@example.com"))

	if got := m.Header.Get("Message-Id"); got != "<"+reference(1)+"@example.com>" {
		t.Errorf("Message-ID %s", got)
	}
	if got := decodeHeader(t, m.Header.Get("Subject")); !strings.HasPrefix(got, "Bestätigung für Jürgen: 240,00 € — danke") || !strings.HasSuffix(got, "Laden") {
		t.Errorf("subject %q", got)
	}
	from, err := mail.ParseAddress(m.Header.Get("From"))
	if err != nil || from.Name != `Käse & "Wein"` || from.Address != "shop@example.com" {
		t.Errorf("from %+v, %v", from, err)
	}
	if to, err := mail.ParseAddress(m.Header.Get("To")); err != nil || to.Address != "jürgen@example.com" {
		t.Errorf("to %+v, %v", to, err)
	}
	if got := m.Header.Get("Reply-To"); got != "<hilfe@example.com>" {
		t.Errorf("reply to %s", got)
	}
	if date, err := m.Header.Date(); err != nil || time.Since(date).Abs() > time.Minute {
		t.Errorf("date %v, %v", date, err)
	}
	if got := decodeBody(t, m.Body); got != text {
		t.Errorf("text %q", got)
	}
}

func TestAMailWithHTMLHasBothForms(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	p := newProvider(t, config(s.address))
	html := `<p style="a=b">--=_` + reference(1) + `--</p>`
	m := delivered(t, s, p, receipt(1, "html", html))
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("%s, %v", kind, err)
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for _, want := range [][2]string{{"text/plain; charset=utf-8", "Thank you."}, {"text/html; charset=utf-8", html}} {
		part, err := parts.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		if got := part.Header.Get("Content-Type"); got != want[0] {
			t.Errorf("type %s, want %s", got, want[0])
		}
		if got := strings.TrimSuffix(decodeBody(t, part), "\r\n"); got != want[1] {
			t.Errorf("body %q, want %q", got, want[1])
		}
	}
	if _, err := parts.NextRawPart(); err != io.EOF {
		t.Errorf("more parts: %v", err)
	}
}

func TestAPayloadThatCannotBeAMailIsRefusedWithItsPath(t *testing.T) {
	t.Parallel()
	p := newProvider(t, config("127.0.0.1:25"))
	long := strings.Repeat("x", 1000)
	for _, tt := range []struct {
		path    string
		members []string
	}{
		{"/to", []string{"to", ""}},
		{"/to", []string{"to", "anna"}},
		{"/to", []string{"to", "anna@"}},
		{"/to", []string{"to", "@example.com"}},
		{"/to", []string{"to", "Anna <anna@example.com>"}},
		{"/to", []string{"to", "anna@example.com, ben@example.com"}},
		{"/to", []string{"to", "anna@example.com>\r\nRCPT TO:<ben@example.com"}},
		{"/to", []string{"to", "anna@example.com SMTPUTF8"}},
		{"/to", []string{"to", `"anna b"@example.com`}},
		{"/to", []string{"to", "anna..b@example.com"}},
		{"/to", []string{"to", ".anna@example.com"}},
		{"/to", []string{"to", "anna@example..com"}},
		{"/to", []string{"to", "anna@-example.com"}},
		{"/to", []string{"to", "anna@[127.0.0.1]"}},
		{"/to", []string{"to", "anna@exa mple.com"}},
		{"/to", []string{"to", "an\u0000na@example.com"}},
		{"/to", []string{"to", "an\u2028na@example.com"}},
		{"/to", []string{"to", strings.Repeat("x", 65) + "@example.com"}},
		{"/subject", []string{"subject", ""}},
		{"/subject", []string{"subject", "Hi\r\nBcc: ben@example.com"}},
		{"/subject", []string{"subject", "Hi\nBcc: ben@example.com"}},
		{"/subject", []string{"subject", "Hi\u0085there"}},
		{"/subject", []string{"subject", "Hi\u0000"}},
		{"/subject", []string{"subject", long}},
		{"/text", []string{"text", ""}},
		{"/text", []string{"text", "a\u0000b"}},
		{"/html", []string{"html", "a\u0000b"}},
		{"/from_name", []string{"from_name", "Shop\r\nBcc: ben@example.com"}},
		{"/from_name", []string{"from_name", long}},
		{"/reply_to", []string{"reply_to", "nobody"}},
		{"/cc", []string{"cc", "ben@example.com"}},
		{"/TO", []string{"TO", "ben@example.com"}},
		{"/a~1b~0c", []string{"a/b~c", "x"}},
	} {
		_, err := p.Prepare(receipt(1, tt.members...))
		var invalid *providers.InvalidError
		if !errors.As(err, &invalid) || invalid.Path != tt.path {
			t.Errorf("%q: got %v, want path %s", tt.members, err, tt.path)
		}
	}
	for payload, path := range map[string]string{
		`[]`: "", `null`: "", `{"to":1}`: "/to", `{"to":null,"subject":"s","text":"t"}`: "/to",
		`{"to":["a@example.com"],"subject":"s","text":"t"}`: "/to", `{}`: "/to",
	} {
		in := receipt(1)
		in.Payload = json.RawMessage(payload)
		_, err := p.Prepare(in)
		var invalid *providers.InvalidError
		if !errors.As(err, &invalid) || invalid.Path != path {
			t.Errorf("%s: got %v, want path %q", payload, err, path)
		}
	}
	in := receipt(1)
	in.Reference = "a@b>\r\nBcc: x"
	if _, err := p.Prepare(in); err == nil {
		t.Error("accepted a reference that is none")
	}
}

func TestTheHashCoversTheMailButNotItsDate(t *testing.T) {
	t.Parallel()
	hash := func(c smtp.Config, in providers.Intent) [32]byte { return prepare(t, newProvider(t, c), in).Hash }
	base := hash(config("127.0.0.1:25"), receipt(1))
	if hash(config("mail.example.com:587", func(c *smtp.Config) { c.TLS, c.Username, c.Password = "", "u", "p" }), receipt(1)) != base {
		t.Error("another server or password changes the hash")
	}
	seen := map[[32]byte]string{base: "the base"}
	for name, h := range map[string][32]byte{
		"reference": hash(config("127.0.0.1:25"), receipt(2)),
		"recipient": hash(config("127.0.0.1:25"), receipt(1, "to", "ben@example.com")),
		"subject":   hash(config("127.0.0.1:25"), receipt(1, "subject", "Hi")),
		"text":      hash(config("127.0.0.1:25"), receipt(1, "text", "Hi")),
		"html":      hash(config("127.0.0.1:25"), receipt(1, "html", "Hi")),
		"name":      hash(config("127.0.0.1:25"), receipt(1, "from_name", "Hi")),
		"reply to":  hash(config("127.0.0.1:25"), receipt(1, "reply_to", "hi@example.com")),
		"sender":    hash(config("127.0.0.1:25", func(c *smtp.Config) { c.From = "other@example.com" }), receipt(1)),
		"domain":    hash(config("127.0.0.1:25", func(c *smtp.Config) { c.Domain = "example.org" }), receipt(1)),
	} {
		if other, taken := seen[h]; taken {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
}

// Whatever a caller writes, the mail has the headers it should have and no others, and
// its texts arrive as they were given.
func FuzzNothingInjectsHeaders(f *testing.F) {
	f.Add("anna@example.com", "Hi", "text", "Shop")
	f.Add("anna@example.com\r\nBcc: x", "Hi\r\nBcc: x", "\r\n.\r\nMAIL FROM:<x>", "a\" <x@y>, ")
	f.Add("ü@bücher.example", "=?utf-8?b?SGk=?=", "=3D\n\r\n", "=?utf-8?q?x?=")
	f.Add("a=b@x", " padded ", "\r\r\n.", "Käse (\\)")
	f.Add("x@y", strings.Repeat("ü", 200), strings.Repeat(".", 3000), strings.Repeat("字", 60))
	s := serve(f, map[string]string{"EHLO": "250-hello\r\n250-8BITMIME\r\n250 SMTPUTF8"})
	p, err := smtp.New(config(s.address))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, to, subject, text, name string) {
		in := receipt(1, "to", to, "subject", subject, "text", text, "from_name", name)
		if _, err := p.Prepare(in); err != nil {
			var invalid *providers.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatal(err)
			}
			return
		}
		m := delivered(t, s, p, in)
		want := []string{"From", "To", "Subject", "Date", "Message-Id", "Mime-Version", "Content-Type", "Content-Transfer-Encoding"}
		if len(m.Header) != len(want) {
			t.Fatalf("headers %v", m.Header)
		}
		for _, h := range want {
			if len(m.Header[h]) != 1 {
				t.Fatalf("header %s: %q", h, m.Header[h])
			}
		}
		var given map[string]string
		if err := json.Unmarshal(in.Payload, &given); err != nil {
			t.Fatal(err)
		}
		if got := decodeHeader(t, m.Header.Get("Subject")); got != given["subject"] {
			t.Fatalf("subject %q, want %q", got, given["subject"])
		}
		if got := m.Header.Get("To"); got != "<"+given["to"]+">" {
			t.Fatalf("to %q, want %q", got, given["to"])
		}
		from, err := mail.ParseAddress(m.Header.Get("From"))
		if err != nil || from.Address != "shop@example.com" || given["from_name"] != "" && from.Name != given["from_name"] {
			t.Fatalf("from %q is %+v, %v; want %q", m.Header.Get("From"), from, err, given["from_name"])
		}
		if got, want := lines(decodeBody(t, m.Body)), lines(given["text"]); got != want {
			t.Fatalf("text %q, want %q", got, want)
		}
	})
}

// lines makes ends of lines alike, and the end of the text, which a mail cannot tell apart.
func lines(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	return strings.TrimRight(s, "\n")
}
