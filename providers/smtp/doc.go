// Package smtp sends an intent as one mail to one recipient through a mail server.
//
// # What it promises
//
// One Send is at most one mail. SMTP has no keys and cannot be asked, so what an attempt
// proves is all there is: the server takes responsibility when it replies 250 to the final
// dot, and not before. Until the dot has left nothing is accepted, whatever happens to the
// connection; from then until the reply the outcome is unknown; a reply of 4xx or 5xx says
// that the mail was not accepted. How the session ends after the reply does not matter:
// net/smtp's SendMail would report an error of QUIT as if the mail had not been sent.
//
// The permit is asked for when the server is ready for the content, so that the content
// and its dot follow at once.
//
// The reference travels in the Message-ID, <reference@domain>, where a person, a bounce or
// a receiver can find it.
//
// # What a reply proves
//
//	no connection, no TLS, or lost before the dot   not sent
//	4xx                                             not sent: temporary
//	credentials refused, 5xx before the sender      not sent, with an alert
//	5xx to the sender                               refused, with an alert; not for good
//	5xx to size, recipient, DATA or dot             refused for good
//	250 to the dot                                  accepted
//	anything else after the dot                     unknown
//
// # The payload
//
// to, subject and text are required; html, from_name and reply_to may be there, and
// nothing else. One connection per mail, none kept: a crash loses nothing.
package smtp
