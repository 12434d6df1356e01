package canonical_test

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// payloads are of common sizes.
var payloads = []struct{ name, src string }{
	{"ten-members", `{"customer":"cus_9s6XKzkNRiz8i3","amount":1999,"currency":"eur","description":"Order 4711",` +
		`"capture":true,"reference":"ord_4711","note":null,"quantity":2,"rate":0.19,"email":"jane@example.com"}`},
	{"ten-members-canonical", `{"amount":1999,"capture":true,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3",` +
		`"description":"Order 4711","email":"jane@example.com","note":null,"quantity":2,"rate":0.19,"reference":"ord_4711"}`},
	{"nested", `{"to":{"name":"Zoë Müller","email":"zoe@example.com"},"lines":[{"sku":"A-1","n":1,"price":250},` +
		`{"sku":"B-2","n":3,"price":99.5}],"meta":{"trace":"4bf92f3577b34da6","tags":["a","b\n"]}}`},
}

func BenchmarkAdmit(b *testing.B) {
	for _, p := range payloads {
		b.Run(p.name, func(b *testing.B) {
			src := []byte(p.src)
			b.ReportAllocs()
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if _, err := canonical.Admit(src, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAdmitRefuses(b *testing.B) {
	src := []byte(`{"a":{"b":[1,2,{"c":1e400}]}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canonical.Admit(src, 0); err == nil {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkFill(b *testing.B) {
	doc := []byte(`{"amount":1999,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3"}`)
	defaults := []byte(`{"capture":true,"note":null}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canonical.Fill(doc, defaults); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	src := []byte(payloads[1].src)
	b.ReportAllocs()
	for b.Loop() {
		canonical.Digest(src)
	}
}

// BenchmarkSQLAdmit measures the function alone: one statement makes all the calls.
func BenchmarkSQLAdmit(b *testing.B) {
	pool := pgtest.DB(b)
	for _, p := range payloads {
		b.Run(p.name, func(b *testing.B) {
			var admitted int
			err := pool.QueryRow(b.Context(), `
				SELECT count(a.canonical) FROM generate_series(1, $2) n, outbox.admit($1 || repeat(' ', n % 2)) a`,
				p.src, b.N).Scan(&admitted)
			if err != nil || admitted != b.N {
				b.Fatal(admitted, err)
			}
		})
	}
}
