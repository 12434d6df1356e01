// Package httpjson sends an intent as one JSON POST, with the reference as the key.
//
// It serves every provider that takes a JSON body and a key header, or that stores a
// stamp from the body; what differs between providers is in [Config].
//
// # What it promises
//
// One Send is at most one POST on one connection. net/http would send a keyed request
// again by itself when a reused connection dies; here it cannot, three times over: the
// body cannot be rewound, HTTP/2 (which replays more) is off, and a gate under the
// connection lets through the bytes of one request only. The same gate asks for the
// permit when the first byte is about to leave, after dialling and handshakes, and is
// what tells "nothing was written" from "something may have been": the error that
// net/http returns cannot.
//
// Redirects are not followed, compression is not asked for, cookies are not kept, and
// the environment's proxies are not used.
//
// # What an answer proves
//
//	nothing written                          not sent
//	2xx with an id                           accepted
//	2xx without a readable id, 202           unknown: look it up
//	3xx                                      unknown, with an alert
//	401 403 404 405 415 421 425 431          not sent: refused at the door
//	400 402 413 422                          refused for good
//	... with a code about idempotency        unknown, with an alert: our key, another body
//	409 408 5xx, no answer, anything else    unknown
//	429                                      unknown, or not sent where the settings say so
//
// [Operation.Answers] overrides this per status or code, where the provider's
// documentation says more.
//
// The package keeps no state but idle connections; a crash loses none of it.
package httpjson
