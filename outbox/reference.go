package outbox

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strconv"
)

// Reference derives what the provider is given as our key: 160 bits of SHA-256 over the
// ledger's id, tenant, operation name, key and generation, each preceded by its length
// in four bytes, in 32 characters of [0-9a-v]. The database derives references by
// itself; this function is the specification that it is tested against.
func Reference(ledger, tenant, operation, key string, generation int) string {
	h := sha256.New()
	for _, part := range []string{ledger, tenant, operation, key, strconv.Itoa(generation)} {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return base32hex.EncodeToString(h.Sum(nil)[:20])
}

var base32hex = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)
