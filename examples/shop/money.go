package shop

import (
	"strconv"
	"strings"
)

// minorUnits is how many digits of an amount stand after the point, by ISO 4217. An
// order in a currency that is missing here is refused: nobody could say what it costs.
var minorUnits = currencies(map[int]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP " +
		"BYN BZD CAD CDF CHF CNY COP CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP " +
		"GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW " +
		"KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR " +
		"MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR " +
		"SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS " +
		"UAH USD UYU UZS VES WST XCD XCG YER ZAR ZMW ZWG",
	3: "BHD IQD JOD KWD LYD OMR TND",
	4: "CLF UYW",
})

func currencies(byUnits map[int]string) map[string]int {
	units := map[string]int{}
	for n, codes := range byUnits {
		for code := range strings.FieldsSeq(codes) {
			units[code] = n
		}
	}
	return units
}

// money shows an amount of minor units with its currency: "12.345 KWD", "0.01 EUR".
func money(amount int64, currency string) string {
	digits := strconv.FormatInt(amount, 10)
	if n := minorUnits[currency]; n > 0 {
		if missing := n + 1 - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		point := len(digits) - n
		digits = digits[:point] + "." + digits[point:]
	}
	return digits + " " + currency
}
