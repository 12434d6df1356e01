package canonical_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// appendixB is the table of RFC 8785, appendix B, but for NaN and infinity.
var appendixB = []struct {
	bits uint64
	want string
}{
	{0x0000000000000000, "0"},
	{0x8000000000000000, "0"},
	{0x0000000000000001, "5e-324"},
	{0x8000000000000001, "-5e-324"},
	{0x7fefffffffffffff, "1.7976931348623157e+308"},
	{0xffefffffffffffff, "-1.7976931348623157e+308"},
	{0x4340000000000000, "9007199254740992"},
	{0xc340000000000000, "-9007199254740992"},
	{0x4430000000000000, "295147905179352830000"},
	{0x44b52d02c7e14af5, "9.999999999999997e+22"},
	{0x44b52d02c7e14af6, "1e+23"},
	{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
	{0x444b1ae4d6e2ef4e, "999999999999999700000"},
	{0x444b1ae4d6e2ef4f, "999999999999999900000"},
	{0x444b1ae4d6e2ef50, "1e+21"},
	{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
	{0x3eb0c6f7a0b5ed8d, "0.000001"},
	{0x41b3de4355555553, "333333333.3333332"},
	{0x41b3de4355555554, "333333333.33333325"},
	{0x41b3de4355555555, "333333333.3333333"},
	{0x41b3de4355555556, "333333333.3333334"},
	{0x41b3de4355555557, "333333333.33333343"},
	{0xbecbf647612f3696, "-0.0000033333333333333333"},
	{0x43143ff3c1cb0959, "1424953923781206.2"},
}

// literal spells a double so that no reader has to guess, and nobody canonically.
func literal(bits uint64) string {
	return strconv.FormatFloat(math.Float64frombits(bits), 'e', 16, 64)
}

func TestTransformOfAppendixB(t *testing.T) {
	for _, tt := range appendixB {
		got, err := canonical.Transform(nil, []byte(literal(tt.bits)))
		if string(got) != tt.want || err != nil {
			t.Errorf("Transform(%s) = %s, %v; want %s", literal(tt.bits), got, err, tt.want)
		}
	}
}

// The published sequence of doubles, and the hash of how its first lines must look.
const (
	es6Lines = 10_000
	es6Hash  = "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892"
)

func writeES6Line(h hash.Hash, bits uint64, canonical string) {
	fmt.Fprintf(h, "%x,%s\n", bits, canonical)
}

func TestTransformOfPublishedNumbers(t *testing.T) {
	h := sha256.New()
	for bits := range es6Numbers {
		got, err := canonical.Transform(nil, []byte(literal(bits)))
		if err != nil {
			t.Fatal(err)
		}
		writeES6Line(h, bits, string(got))
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != es6Hash {
		t.Errorf("hash of %d numbers = %s; want %s", es6Lines, got, es6Hash)
	}
}

// The oracle of this test is exact arithmetic: a number is admitted if it obeys the
// rule, and keeps its value then. So no two numbers are admitted as one.
func TestAdmittedNumbersKeepTheirValue(t *testing.T) {
	g := generator{Rand: rand.New(rand.NewPCG(1, 2))}
	admitted := 0
	for range 200_000 {
		g.out = g.out[:0]
		g.number()
		text := string(g.out)
		value, ok := exactly(text)
		if !ok {
			continue
		}
		got, err := canonical.Admit([]byte(`{"":`+text+`}`), 0)
		if want := obeysNumberRule(value); (err == nil) != want {
			t.Fatalf("Admit(%s): %v; want it admitted: %v", text, err, want)
		}
		if err != nil {
			continue
		}
		admitted++
		if kept, _ := exactly(string(got[len(`{"":`) : len(got)-1])); kept.Cmp(value) != 0 {
			t.Fatalf("%s became %s", text, got)
		}
	}
	if admitted < 50_000 {
		t.Errorf("only %d numbers were admitted; the test proves little", admitted)
	}
}

// exactly returns the value of a literal whose exponent is not absurd.
func exactly(literal string) (value *big.Rat, ok bool) {
	if _, exponent, found := strings.Cut(strings.ToLower(literal), "e"); found {
		if n, err := strconv.Atoi(exponent); err != nil || n < -1000 || n > 1000 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(literal)
}

// obeysNumberRule states the rule of number_not_exact in other words: fifteen digits
// are what printing with fifteen digits does not change.
func obeysNumberRule(x *big.Rat) bool {
	if x.IsInt() {
		return new(big.Int).Abs(x.Num()).Cmp(big.NewInt(1<<53-1)) <= 0
	}
	f, _ := x.Float64()
	printed, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', 14, 64))
	smallest := new(big.Rat).SetFloat64(0x1p-1022)
	return ok && printed.Cmp(x) == 0 && new(big.Rat).Abs(x).Cmp(smallest) >= 0
}

// es6Numbers yields the bits of es6Lines doubles. They and their order are from
// numgen.go; see testdata/rfc8785/README.md.
func es6Numbers(yield func(bits uint64) bool) {
	const serial = 2000
	var block [sha256.Size]byte
	var random []byte
	for i := range es6Lines {
		var bits uint64
		switch {
		case i < len(es6Static):
			bits = es6Static[i]
		case i < len(es6Static)+serial:
			bits = 0x0010000000000000 + uint64(i-len(es6Static))
		default:
			for f := 0.0; f == 0 || math.IsNaN(f) || math.IsInf(f, 0); f = math.Float64frombits(bits) {
				if len(random) == 0 {
					block = sha256.Sum256(block[:])
					random = block[:]
				}
				bits = binary.LittleEndian.Uint64(random)
				random = random[8:]
			}
		}
		if !yield(bits) {
			return
		}
	}
}

var es6Static = [...]uint64{
	0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001,
	0xc46696695dbd1cc3, 0xc43211ede4974a35, 0xc3fce97ca0f21056, 0xc3c7213080c1a6ac,
	0xc39280f39a348556, 0xc35d9b1f5d20d557, 0xc327af4c4a80aaac, 0xc2f2f2a36ecd5556,
	0xc2be51057e155558, 0xc28840d131aaaaac, 0xc253670dc1555557, 0xc21f0b4935555557,
	0xc1e8d5d42aaaaaac, 0xc1b3de4355555556, 0xc17fca0555555556, 0xc1496e6aaaaaaaab,
	0xc114585555555555, 0xc0e046aaaaaaaaab, 0xc0aa0aaaaaaaaaaa, 0xc074d55555555555,
	0xc040aaaaaaaaaaab, 0xc00aaaaaaaaaaaab, 0xbfd5555555555555, 0xbfa1111111111111,
	0xbf6b4e81b4e81b4f, 0xbf35d867c3ece2a5, 0xbf0179ec9cbd821e, 0xbecbf647612f3696,
	0xbe965e9f80f29212, 0xbe61e54c672874db, 0xbe2ca213d840baf8, 0xbdf6e80fe033c8c6,
	0xbdc2533fe68fd3d2, 0xbd8d51ffd74c861c, 0xbd5774ccac3d3817, 0xbd22c3d6f030f9ac,
	0xbcee0624b3818f79, 0xbcb804ea293472c7, 0xbc833721ba905bd3, 0xbc4ebe9c5db3c61e,
	0xbc18987d17c304e5, 0xbbe3ad30dfcf371d, 0xbbaf7b816618582f, 0xbb792f9ab81379bf,
	0xbb442615600f9499, 0xbb101e77800c76e1, 0xbad9ca58cce0be35, 0xbaa4a1e0a3e6fe90,
	0xba708180831f320d, 0xba3a68cd9e985016, 0x446696695dbd1cc3, 0x443211ede4974a35,
	0x43fce97ca0f21056, 0x43c7213080c1a6ac, 0x439280f39a348556, 0x435d9b1f5d20d557,
	0x4327af4c4a80aaac, 0x42f2f2a36ecd5556, 0x42be51057e155558, 0x428840d131aaaaac,
	0x4253670dc1555557, 0x421f0b4935555557, 0x41e8d5d42aaaaaac, 0x41b3de4355555556,
	0x417fca0555555556, 0x41496e6aaaaaaaab, 0x4114585555555555, 0x40e046aaaaaaaaab,
	0x40aa0aaaaaaaaaaa, 0x4074d55555555555, 0x4040aaaaaaaaaaab, 0x400aaaaaaaaaaaab,
	0x3fd5555555555555, 0x3fa1111111111111, 0x3f6b4e81b4e81b4f, 0x3f35d867c3ece2a5,
	0x3f0179ec9cbd821e, 0x3ecbf647612f3696, 0x3e965e9f80f29212, 0x3e61e54c672874db,
	0x3e2ca213d840baf8, 0x3df6e80fe033c8c6, 0x3dc2533fe68fd3d2, 0x3d8d51ffd74c861c,
	0x3d5774ccac3d3817, 0x3d22c3d6f030f9ac, 0x3cee0624b3818f79, 0x3cb804ea293472c7,
	0x3c833721ba905bd3, 0x3c4ebe9c5db3c61e, 0x3c18987d17c304e5, 0x3be3ad30dfcf371d,
	0x3baf7b816618582f, 0x3b792f9ab81379bf, 0x3b442615600f9499, 0x3b101e77800c76e1,
	0x3ad9ca58cce0be35, 0x3aa4a1e0a3e6fe90, 0x3a708180831f320d, 0x3a3a68cd9e985016,
	0x4024000000000000, 0x4014000000000000, 0x3fe0000000000000, 0x3fa999999999999a,
	0x3f747ae147ae147b, 0x3f40624dd2f1a9fc, 0x3f0a36e2eb1c432d, 0x3ed4f8b588e368f1,
	0x3ea0c6f7a0b5ed8d, 0x3e6ad7f29abcaf48, 0x3e35798ee2308c3a, 0x3ed539223589fa95,
	0x3ed4ff26cd5a7781, 0x3ed4f95a762283ff, 0x3ed4f8c60703520c, 0x3ed4f8b72f19cd0d,
	0x3ed4f8b5b31c0c8d, 0x3ed4f8b58d1c461a, 0x3ed4f8b5894f7f0e, 0x3ed4f8b588ee37f3,
	0x3ed4f8b588e47da4, 0x3ed4f8b588e3849c, 0x3ed4f8b588e36bb5, 0x3ed4f8b588e36937,
	0x3ed4f8b588e368f8, 0x3ed4f8b588e368f1, 0x3ff0000000000000, 0xbff0000000000000,
	0xbfeffffffffffffa, 0xbfeffffffffffffb, 0x3feffffffffffffa, 0x3feffffffffffffb,
	0x3feffffffffffffc, 0x3feffffffffffffe, 0xbfefffffffffffff, 0xbfefffffffffffff,
	0x3fefffffffffffff, 0x3fefffffffffffff, 0x3fd3333333333332, 0x3fd3333333333333,
	0x3fd3333333333334, 0x0010000000000000, 0x000ffffffffffffd, 0x000fffffffffffff,
	0x7fefffffffffffff, 0xffefffffffffffff, 0x4340000000000000, 0xc340000000000000,
	0x4430000000000000, 0x44b52d02c7e14af5, 0x44b52d02c7e14af6, 0x44b52d02c7e14af7,
	0x444b1ae4d6e2ef4e, 0x444b1ae4d6e2ef4f, 0x444b1ae4d6e2ef50, 0x3eb0c6f7a0b5ed8c,
	0x3eb0c6f7a0b5ed8d, 0x41b3de4355555553, 0x41b3de4355555554, 0x41b3de4355555555,
	0x41b3de4355555556, 0x41b3de4355555557, 0xbecbf647612f3696, 0x43143ff3c1cb0959,
}
