package main

// person is somebody who orders: a name as its bearer writes it, and what stands before
// the @ of their address.
type person struct{ name, mailbox string }

// place is where parcels go. A # in the lines is a house number.
type place struct {
	lines                  []string
	city, region, postcode string
}

// region is a part of the world: its people, addresses and money.
type region struct {
	country    string
	currencies []string
	domains    []string
	people     []person
	places     []place
}

var nordic = []region{
	{
		"NO",
		[]string{"NOK"},
		[]string{"no.example", "post.example"},
		[]person{{"Åse Ødegård-Næss", "aase.odegard"}, {"Bjørn Å", "bjorn.a"}, {"Siri von der Lippe", "siri+fjord"}, {"Nils-Aslak Valkeapää", "nils_aslak"}},
		[]place{{[]string{"Øvre Slottsgate #", "Oppgang B"}, "Oslo", "", "0157"}, {[]string{"Å i Lofoten #"}, "Sørvågen", "Nordland", "8392"}},
	},
	{
		"SE",
		[]string{"SEK"},
		[]string{"se.example", "xn--vstrstad-0zac.example"},
		[]person{{"Göran Ö", "goran"}, {"Märta af Ugglas", "marta.af.ugglas"}, {"Örjan Strömqvist", "o.stromqvist"}},
		[]place{{[]string{"Sankt Eriksgatan # A, 3 tr"}, "Stockholm", "", "112 39"}, {[]string{"c/o Öberg", "Västra Hamngatan #"}, "Göteborg", "", "411 17"}},
	},
	{
		"DK",
		[]string{"DKK"},
		[]string{"dk.example"},
		[]person{{"Søren Rasmussen Bæk", "sb"}, {"Ida Æ", "ida.ae"}},
		[]place{{[]string{"Nørrebrogade #, 2. tv."}, "København N", "", "2200"}, {[]string{"Ærøvej #"}, "Ærøskøbing", "", "5970"}},
	},
	{
		"IS",
		[]string{"ISK"},
		[]string{"is.example", "mail.example"},
		[]person{{"Guðrún Þorvaldsdóttir", "gudrun"}, {"Ævar Örn Jósepsson", "aevar.orn"}, {"Þór Ð. Sigurðsson", "thor.d"}},
		[]place{{[]string{"Skólavörðustígur #"}, "Reykjavík", "", "101"}, {[]string{"Efri-Brunná #"}, "Búðardalur", "Dalabyggð", "371"}},
	},
	{
		"FI",
		[]string{"EUR"},
		[]string{"fi.example"},
		[]person{{"Väinö Yrjö-Koskinen", "vaino.yk"}, {"Aino Öö", "aino"}},
		[]place{{[]string{"Hämeentie # C 57"}, "Helsinki", "", "00560"}},
	},
}

var arabic = []region{
	{
		"BH",
		[]string{"BHD"},
		[]string{"bh.example", "xn--mgbh0fb.example"},
		[]person{{"مريم بنت عبد الله آل خليفة", "maryam"}, {"يوسف العلوي", "y.alalawi"}},
		[]place{{[]string{"مبنى #، طريق ٢٨٣٢", "مجمع ٤٢٨"}, "السيف", "", "428"}},
	},
	{
		"KW",
		[]string{"KWD"},
		[]string{"kw.example"},
		[]person{{"نورة الصباح", "noura"}, {"د. فهد المطيري\u200f", "fahad.md"}},
		[]place{{[]string{"قطعة 5، شارع 12", "منزل #"}, "السالمية", "حولي", "22001"}, {[]string{"Block 4, Street 17", "House #, Flat 2"}, "Salmiya", "", ""}},
	},
	{
		"TN",
		[]string{"TND"},
		[]string{"tn.example", "courrier.example"},
		[]person{{"Héla Ben Hadj M’hamed", "hela.bhm"}, {"أبو القاسم بن يحيى", "abou.kacem"}},
		[]place{{[]string{"#, rue de l’Église", "Bab Bhar"}, "Tunis", "", "1000"}, {[]string{"نهج القصبة عدد #"}, "صفاقس", "", "3000"}},
	},
	{
		"JO",
		[]string{"JOD"},
		[]string{"jo.example"},
		[]person{{"رانيا ع", "rania"}, {"زيد أبو‑غزالة", "zaid+work"}},
		[]place{{[]string{"شارع الرينبو #", "جبل عمّان"}, "عمّان", "", "11183"}},
	},
	{
		"AE",
		[]string{"AED"},
		[]string{"ae.example"},
		[]person{{"\u200fسالم بن راشد المكتوم\u200f", "salem"}, {"Dr. P. V. Krishnamoorthy Iyer", "pv.iyer"}},
		[]place{{[]string{"PO Box #", "Marina Walk, Tower 3"}, "Dubai", "Dubai", ""}},
	},
	{
		"IL",
		[]string{"ILS"},
		[]string{"co.il.example", "xn--4dbrk0ce.example"},
		[]person{{"נֹעָה בֶּן־דָּוִד", "noa.bd"}, {"ד״ר יעל ז׳בוטינסקי", "yael"}, {"\u2067אבי כהן\u2069", "avi"}},
		[]place{{[]string{"רחוב אבן גבירול #", "דירה 8"}, "תל אביב-יפו", "", "6407807"}},
	},
	{
		"EG",
		[]string{"EGP"},
		[]string{"eg.example"},
		[]person{{"عبدالرحمن محمد محمود أحمد السيد عبدالحميد", "abdelrahman.mm"}, {"Naguib O’Sullivan-Ghali", "n.o'sullivan"}},
		[]place{{[]string{"٢٦ شارع شريف، عمارة #", "الدور الثالث"}, "القاهرة", "محافظة القاهرة", "11511"}},
	},
	{
		"IR",
		[]string{"IRR"},
		[]string{"ir.example"},
		[]person{{"می\u200cنا خانلری", "mina"}, {"حسین\u200cعلی منتظری", "hossein_ali"}},
		[]place{{[]string{"خیابان ولی\u200cعصر، کوچهٔ یاس، پلاک #"}, "تهران", "", "1591634311"}},
	},
}

var eastAsian = []region{
	{
		"JP",
		[]string{"JPY"},
		[]string{"jp.example", "xn--wgv71a119e.example"},
		[]person{{"高橋　はるか", "haruka"}, {"𠮷野 家康", "yoshino"}, {"髙﨑 みどり", "takasaki.m"}, {"ジョン・オブライエン", "john.obrien"}, {"一", "hajime"}},
		[]place{{[]string{"神宮前#丁目3番10号", "花見マンション 201号室"}, "渋谷区", "東京都", "150-0001"}, {[]string{"辻󠄀堂#-5"}, "藤沢市", "神奈川県", "251-0047"}},
	},
	{
		"KR",
		[]string{"KRW"},
		[]string{"kr.example"},
		[]person{{"남궁민수", "namgung"}, {"오 은", "o.eun"}, {"제갈량", "jegal"}},
		[]place{{[]string{"세종대로 #", "101동 1502호"}, "서울특별시", "중구", "04524"}},
	},
	{
		"CN",
		[]string{"CNY"},
		[]string{"cn.example", "xn--fiqs8s.example"},
		[]person{{"欧阳修远", "ouyang"}, {"㐱𠀀明", "zhen.ming"}, {"阿依古丽·买买提", "ayguli"}},
		[]place{{[]string{"中关村大街#号", "5号楼 3单元 402室"}, "北京市", "海淀区", "100080"}},
	},
	{
		"TW",
		[]string{"TWD"},
		[]string{"tw.example"},
		[]person{{"陳范姜秀蘭", "hsiulan"}, {"Kolas Yotaka", "kolas"}},
		[]place{{[]string{"信義路五段#號", "89樓之1"}, "臺北市", "信義區", "110615"}},
	},
	{
		"VN",
		[]string{"VND"},
		[]string{"vn.example"},
		// The first is composed, the second decomposed: two people, as far as bytes go.
		[]person{{"Nguy\u1ec5n Th\u1ecb \u00c1nh", "anh.nguyen"}, {"Nguye\u0302\u0303n Thi\u0323 A\u0301nh", "anh.nguyen2"}, {"Đỗ Ý", "do.y"}, {"Trần Đại Nghĩa", "tran.dn"}},
		[]place{{[]string{"Số # ngõ 12, phố Hàng Bông"}, "Hà Nội", "", "11000"}, {[]string{"#/4B Đường Nguyễn Đình Chiểu", "Phường Đa Kao"}, "Thành phố Hồ Chí Minh", "", "71000"}},
	},
	{
		"TH",
		[]string{"THB"},
		[]string{"th.example"},
		[]person{{"คุณหญิงปุณณ์ ธรรมรักษาเกียรติกุล ณ อยุธยา", "poon"}, {"สมชาย ใจดี", "somchai"}},
		[]place{{[]string{"#/9 ซอยสุขุมวิท 24", "แขวงคลองตัน เขตคลองเตย"}, "กรุงเทพมหานคร", "", "10110"}},
	},
}

var latin = []region{
	{
		"CL",
		[]string{"CLP", "CLP", "CLF"},
		[]string{"cl.example"},
		[]person{{"María José Larraín Ü.", "mj.larrain"}, {"Lautaro Ñancupil", "lautaro"}, {"José O", "jose.o"}},
		[]place{{[]string{"Av. Libertador Bernardo O'Higgins #", "Depto. 1204, Torre Ñ"}, "Santiago", "Región Metropolitana", "8320000"}, {[]string{"Camino a Ñipas s/n", "Parcela #"}, "Ránquil", "Ñuble", ""}},
	},
	{
		"BR",
		[]string{"BRL"},
		[]string{"com.br.example"},
		[]person{{"João das Neves d’Ávila e Souza", "joao.neves"}, {"Conceição dos Santos Jr.", "conceicao"}},
		[]place{{[]string{"Rua São João, #", "Bloco B – apto 42"}, "São Paulo", "SP", "01035-000"}},
	},
	{
		"MX",
		[]string{"MXN"},
		[]string{"mx.example"},
		[]person{{"Ximena de la Peña y Güemes", "ximena"}, {"Itzel Xóchitl Núñez", "itzel"}},
		[]place{{[]string{"Calle 5 de Mayo Núm. # Int. 3", "Col. Centro"}, "Ciudad de México", "CDMX", "06000"}},
	},
	{
		"PY",
		[]string{"PYG"},
		[]string{"py.example"},
		[]person{{"Avá Ñe’ẽ Benítez", "ava"}},
		[]place{{[]string{"Av. Mcal. López # c/ Perú"}, "Asunción", "", ""}},
	},
	{
		"CO",
		[]string{"COP"},
		[]string{"co.example"},
		[]person{{"Íngrid Yáñez-Ibargüengoitia", "ingrid"}},
		[]place{{[]string{"Carrera 7 # 45-10", "Edificio El Águila"}, "Bogotá", "Cundinamarca", "110231"}},
	},
	{
		"CM",
		[]string{"XAF"},
		[]string{"cm.example"},
		[]person{{"Ngo Bassong épouse N’Diaye", "ngo.bassong"}, {"Mbarga Mbarga", "mbarga"}},
		[]place{{[]string{"BP #", "Quartier Bastos"}, "Yaoundé", "", ""}},
	},
	{
		"SN",
		[]string{"XOF"},
		[]string{"sn.example"},
		[]person{{"Aïssatou Ñaay", "aissatou"}},
		[]place{{[]string{"Sicap Liberté 6, villa #"}, "Dakar", "", "12500"}},
	},
}

var european = []region{
	{
		"US",
		[]string{"USD", "USD"},
		[]string{"example.com", "mail.example.net"},
		[]person{{"Mary-Kate O'Connor III", "mk.oconnor"}, {"Stephen X", "x"}, {"Keihanaikukauakahihuliheekahaunaele", "janice.k"}, {"\"Bob\"; DROP TABLE orders;--", "bobby.tables"}, {"Wm. Null", "null"}},
		[]place{{[]string{"# Main St Apt 4B", "ATTN: <Mail Room>"}, "Springfield", "IL", "62701-1234"}, {[]string{"RR 2 Box #"}, "Truth or Consequences", "NM", "87901"}},
	},
	{
		"GB",
		[]string{"GBP"},
		[]string{"co.uk.example", "example.org"},
		[]person{{"Siân Llŷr ap Gruffudd", "sian"}, {"J. R. R. Ng", "jrr.ng"}, {"Aoife Ní Dhálaigh", "aoife"}},
		[]place{{[]string{"The Old Rectory", "# Church Lane", "Nether Wallop"}, "Stockbridge", "Hants", "SO20 8HB"}, {[]string{"Flat 3, # King's Road"}, "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch", "Ynys Môn", "LL61 5UJ"}},
	},
	{
		"IE",
		[]string{"EUR"},
		[]string{"ie.example"},
		[]person{{"Seán Ó Súilleabháin", "sean.os"}, {"Caoimhe de Búrca", "caoimhe"}},
		[]place{{[]string{"Teach an Chnoic", "Baile na hAbhann #"}, "Indreabhán", "Co. na Gaillimhe", ""}},
	},
	{
		"DE",
		[]string{"EUR", "EUR"},
		[]string{"de.example", "xn--bcher-kva.example"},
		[]person{{"Friederike Straßmann-Freiin von und zu Löwenstein", "f.strassmann"}, {"Jörg ẞ", "joerg"}, {"Çağlar Öztürk", "caglar"}},
		[]place{{[]string{"Straße des 17. Juni # a", "Hinterhaus, 4. OG"}, "Berlin", "", "10623"}, {[]string{"Packstation #", "Postnummer 1234567890"}, "München", "", "80331"}},
	},
	{
		"FR",
		[]string{"EUR"},
		[]string{"fr.example"},
		[]person{{"Zoë d’Aÿ", "zoe"}, {"Jean-François de L’Hôpital", "jf.lhopital"}, {"Anaïs Lœuilleux", "anais"}},
		[]place{{[]string{"# bis, rue de l'Œuvre", "Bât. C — 3ᵉ étage gauche"}, "L’Haÿ-les-Roses", "", "94240"}},
	},
	{
		"HU",
		[]string{"HUF"},
		[]string{"hu.example"},
		[]person{{"Csörgő Őrsi Tünde", "csorgo.t"}, {"özv. Kovácsné Ű Piroska", "piroska"}},
		[]place{{[]string{"Szőlőskert köz #. II/4."}, "Hódmezővásárhely", "", "6800"}},
	},
	{
		"PL",
		[]string{"PLN"},
		[]string{"pl.example"},
		[]person{{"Łucja Święcicka-Żółć", "lucja"}, {"Grzegorz Brzęczyszczykiewicz", "grzegorz"}},
		[]place{{[]string{"ul. Świętojańska #/12"}, "Łódź", "łódzkie", "90-001"}},
	},
	{
		"GR",
		[]string{"EUR"},
		[]string{"gr.example", "xn--hxajbheg2az3al.example"},
		[]person{{"Ἀλέξανδρος Παπαδιαμάντης", "alexandros"}, {"Άννα Ω", "anna.omega"}},
		[]place{{[]string{"Οδός Αγίας Σοφίας #"}, "Θεσσαλονίκη", "", "546 22"}},
	},
	{
		"RU",
		[]string{"RUB"},
		[]string{"ru.example", "xn--e1afmkfd.example"},
		[]person{{"Щёголев-Ыйский Ёж Юрьевич", "shchegolev"}, {"Анна Я", "anna.ya"}},
		[]place{{[]string{"ул. Большая Садовая, д. #, кв. 50"}, "Москва", "", "123001"}},
	},
	{
		"UA",
		[]string{"UAH"},
		[]string{"ua.example"},
		[]person{{"Дар’я Їжакевич", "darya"}, {"Ґалаґан Є. І.", "galagan"}},
		[]place{{[]string{"вул. Ярославів Вал, #"}, "Київ", "", "01054"}},
	},
	{
		"IN",
		[]string{"INR"},
		[]string{"in.example"},
		[]person{{"श्रीमती लक्ष्मी ऋषि", "lakshmi"}, {"A. P. J. Abdul", "apj"}, {"S", "s.mononym"}},
		[]place{{[]string{"मकान नं. #, गली नं. ३", "लाजपत नगर, नई सब्ज़ी मण्डी के पास"}, "नई दिल्ली", "दिल्ली", "110024"}},
	},
	{
		"CH",
		[]string{"CHF"},
		[]string{"ch.example"},
		[]person{{"Beat Wälti-d'Oleire", "beat"}, {"Urs Ö", "urs"}},
		[]place{{[]string{"Chemin du Crêt-de-Plan #"}, "La Chaux-de-Fonds", "NE", "2300"}},
	},
}

// storefront sells to some regions.
type storefront struct {
	name    string
	regions []region
}

// big has half of all orders, small the other half in turns.
var (
	big   = storefront{"meridian", european}
	small = []storefront{{"fjord", nordic}, {"souk", arabic}, {"hanami", eastAsian}, {"andes", latin}}
)

var giftNotes = []string{
	"Happy birthday! 🎂🎉",
	"Für Oma 👵🏽❤️ – von uns allen\n👨‍👩‍👧‍👦",
	"お誕生日おめでとうございます🌸",
	"كل عام وأنتم بخير 🌙",
	"Z̷a̸l̵g̶o̷ says hi: H̸̡̪̯ͨ͊̽̅̾̎Ȩ̬̩̾͛ͪ̈́̀́͘ ̶̧̨̱̹̭̯ͧ̾ͬC̷̙̲̝͖ͭ̏ͥͮ͟Oͮ͏̮̪̝͍M̲̖͊̒ͪͩͬ̚̚͜Ȇ̴̟̟͙̞ͩ͌͝S̨̥̫͎̭ͯ̿̔̀ͅ",
	"🏴󠁧󠁢󠁷󠁬󠁳󠁿 Penblwydd hapus!",
	"Please do NOT include the price. Thanks; ${name} {{.Name}} %s \\n",
	"𝔉𝔬𝔯 𝔶𝔬𝔲, 𝒘𝒊𝒕𝒉 𝓵𝓸𝓿𝓮 🇺🇳",
	"С Новым годом! 🎄",
}
