package smtp

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/outbox-worker/outbox-worker/providers"
)

// stage is what a reply is to.
type stage int

const (
	atGreeting stage = iota
	atHello
	atStartTLS
	atAuth
	atMail
	atRcpt
	atData
	atContent
	atDot
)

var stageNames = map[stage]string{
	atGreeting: "the connection", atHello: "EHLO", atStartTLS: "STARTTLS", atAuth: "AUTH", atMail: "the sender",
	atRcpt: "the recipient", atData: "DATA", atContent: "the content", atDot: "the mail",
}

var (
	enhanced = regexp.MustCompile(`^[245]\.[0-9]{1,3}\.[0-9]{1,3}\b`)
	queueID  = regexp.MustCompile(`(?i)\bqueued as ([A-Za-z0-9][A-Za-z0-9._-]{0,99})`)
)

// classify says what a reply that is no success proves. The text is left out: it likes to
// repeat the recipient's address.
func classify(at stage, code int, text string) providers.Answer {
	name := fmt.Sprintf("smtp_%d", code)
	reason := fmt.Sprintf("the server replied %d to %s", code, stageNames[at])
	precise := enhanced.FindString(text)
	if precise != "" {
		name, reason = precise, fmt.Sprintf("the server replied %d %s to %s", code, precise, stageNames[at])
	}
	switch {
	case code/100 == 4:
		return providers.NotSent(name, reason, 0)
	case code/100 != 5 && at == atDot:
		return providers.Unknown(name, reason+", which is no answer")
	case code/100 != 5:
		return providers.NotSent(name, reason+", which is no answer", 0)
	case at <= atAuth, code == 530, code == 534, code == 535, code == 538:
		a := providers.NotSent(name, reason, 0)
		a.Alert = true
		return a
	case at == atMail && code != 552 && precise != "5.3.4" && precise != "5.2.3":
		// Our own address: no fault of this mail, and no other mail will fare better.
		a := providers.Refused(name, reason, false)
		a.Alert = true
		return a
	}
	return providers.Refused(name, reason, true)
}

// clean makes one short printable line of what a server had a hand in.
func clean(s string) string {
	const tooLong = 200
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	if len(s) > tooLong {
		s = strings.ToValidUTF8(s[:tooLong], "") + "..."
	}
	return s
}
