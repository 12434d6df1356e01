package main

// article is something on sale. cents is its price in cents of a dollar; every currency
// has its own from that.
type article struct {
	sku     string
	title   string
	cents   int64
	digital bool
}

// goods begin with those that go by post.
var goods = []article{
	{"NB-A5-DOT", "Notebook A5, dotted, 192 pages", 1490, false},
	{"NB-A6-RULE", "Pocket notebook A6, ruled (set of 3)", 1100, false},
	{"PEN-FN-EF", "Fountain pen “Meridian”, extra fine nib", 8900, false},
	{"INK-30-BLU", "Ink 30 ml — blue‑black", 1250, false},
	{"PCL-12-HB", "Pencils HB, 12 pcs.", 640, false},
	{"WASHI-5", "和紙テープ 5巻セット", 980, false},
	{"KOKUYO-B5", "コクヨ キャンパスノート B5 ドット入り罫線", 320, false},
	{"HANJI-A4", "한지 A4 50매", 1800, false},
	{"CALLI-BR", "毛筆（中）", 2600, false},
	{"QALAM-3", "قلم خط عربي، ثلاثة أحجام", 3400, false},
	{"SIDDUR", "מחברת כתיבה תמה — 40 דפים", 450, false},
	{"BOOK-WAR", "Толстой Л. Н. «Война и мир», т. I–II", 3200, false},
	{"BOOK-GENJI", "源氏物語 (上)", 2800, false},
	{"BOOK-ZORBA", "Βίος και Πολιτεία του Αλέξη Ζορμπά", 1600, false},
	{"BOOK-RAMA", "रामचरितमानस (सटीक)", 1200, false},
	{"BOOK-KIEU", "Truyện Kiều (bản song ngữ)", 1500, false},
	{"BOOK-SAGA", "Njáls saga — þýðing og skýringar", 4100, false},
	{"BOOK-PHRA", "พระอภัยมณี ฉบับสมบูรณ์", 2200, false},
	{"MUG-CAT", "Mug “🐈‍⬛ ≠ 🐈”", 1700, false},
	{"STICK-01", "Sticker sheet 🧷✂️🖇️", 390, false},
	{"GLOBE-30", "Globe, 30 cm, illuminated", 12900, false},
	{"LAMP-DSK", "Desk lamp <Lux>, 4000 K & dimmable", 7400, false},
	{"MAP-W-120", "World map, 120 × 80 cm \"political\"", 2400, false},
	{"PAPER-500", "Paper A4, 80 g/m², 500 sheets", 750, false},
	{"CARD-B-10", "Birthday cards, 10 pcs. (5% recycled\\recyclable)", 1300, false},
	{"SAMPLE-INK", "Ink sample 2 ml (free)", 0, false},
	{"EB-ATLAS", "Atlas of Remote Islands (e‑book)", 1990, true},
	{"EB-LETTERS", "Lettere dal carcere (e‑book)", 990, true},
	{"AB-QUIJOTE", "Don Quijote de la Mancha (audiolibro)", 2490, true},
	{"FONT-SERIF", "Typeface “Lange Nacht”, desktop licence", 14900, true},
	{"FONT-NASKH", "خط نسخ «ليلى» — رخصة سطح المكتب", 12900, true},
	{"GIFT-50", "Gift card 🎁", 5000, true},
	{"COURSE-CAL", "Calligraphy course, 12 lessons", 9900, true},
	{"PLAN-PDF", "Planner 2031 (PDF)", 490, true},
}

const firstDigital = 26

// currency says what a dollar cent costs, in hundredths of a minor unit, and to how
// many minor units prices are rounded there.
type currency struct {
	perCent, step int64
}

var currencies = map[string]currency{
	"USD": {100, 1}, "EUR": {92, 1}, "GBP": {79, 1}, "CHF": {89, 5}, "PLN": {402, 1},
	"HUF": {36_000, 500}, "CZK": {2_310, 100}, "RON": {458, 1}, "RUB": {9_100, 100}, "UAH": {4_050, 50},
	"NOK": {1_060, 100}, "SEK": {1_040, 100}, "DKK": {687, 25}, "ISK": {138, 5},
	"BHD": {376, 5}, "KWD": {307, 5}, "TND": {3_110, 50}, "JOD": {709, 10}, "AED": {367, 25}, "EGP": {4_750, 25}, "ILS": {371, 10}, "IRR": {4_200_000, 100_000},
	"JPY": {150, 10}, "KRW": {1_350, 100}, "CNY": {724, 10}, "TWD": {3_200, 100}, "VND": {25_400, 1_000}, "THB": {3_600, 100}, "INR": {8_350, 100}, "IDR": {1_575_000, 10_000},
	"CLP": {950, 10}, "CLF": {244, 1}, "BRL": {510, 1}, "MXN": {1_810, 50}, "PYG": {7_500, 100}, "COP": {410_000, 5_000}, "XAF": {605, 5}, "XOF": {605, 5},
}

// price of an amount of dollar cents, rounded up to a step.
func (c currency) price(cents int64) int64 {
	steps := (cents*c.perCent/100 + c.step - 1) / c.step
	return steps * c.step
}
