"""What symbols, units, months and money are called, by language. English is full; the others have what is commonest."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Money:
    """Name a currency: one of it, several, and its hundredths."""

    one: str
    many: str
    cent: str = ""
    cents: str = ""


@dataclass(frozen=True, slots=True)
class Wording:
    """Hold the words of a language; what is not there stays as it is written.

    Args:
        symbols: name by character.
        money: currency by symbol.
        units: one and many, by unit.
        percent: what `%` is called after a number.
        minus: before a negative number.
        range_to: between the ends of a range.
        months: January to December, as in a date.
        abbreviations: long form by abbreviation with its full stops.
        day_is_ordinal: the first of the month, all days, or none are read as ordinals: `first`, `all`, ``.
        clock: what stands between hours and minutes.
        o_clock: what stands after whole hours.
        magnitudes: one and many, by letter or abbreviation after money.
    """

    symbols: Mapping[str, str] = field(default_factory=dict)
    money: Mapping[str, Money] = field(default_factory=dict)
    units: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    percent: str = ""
    minus: str = ""
    range_to: str = ""
    months: tuple[str, ...] = ()
    abbreviations: Mapping[str, str] = field(default_factory=dict)
    day_is_ordinal: str = ""
    clock: str = ""
    o_clock: str = ""
    magnitudes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def _units(table: str) -> dict[str, tuple[str, str]]:
    """Return units of a table of `unit=one/many` entries, separated by commas."""
    found = {}
    for entry in table.split(","):
        unit, _, names = " ".join(entry.split()).partition("=")
        one, _, many = names.partition("/")
        found[unit] = (one, many or one)
    return found


ENGLISH = Wording(
    symbols={
        "&": "and", "+": "plus", "=": "equals", "≠": "is not equal to", "≤": "is less than or equal to",
        "≥": "is greater than or equal to", "<": "is less than", ">": "is greater than", "≈": "is about",
        "×": "times", "÷": "divided by", "±": "plus or minus", "√": "square root of", "∞": "infinity", "%": "percent",
        "‰": "per thousand", "°": "degrees", "§": "section", "©": "copyright", "®": "registered", "™": "trademark",
        "№": "number", "/": "slash", "\\": "backslash", "@": "at", "#": "hash", "^": "to the power of",
        "µ": "micro", "π": "pi", "½": "one half", "¼": "one quarter", "¾": "three quarters", "⅓": "one third",
        "⅔": "two thirds", "⅛": "one eighth", "²": "squared", "³": "cubed", "$": "dollars", "€": "euros",
        "£": "pounds", "¥": "yen", "₹": "rupees", "₽": "roubles", "₩": "won", "¢": "cents", "₿": "bitcoin",
        "→": "to", "∑": "sum of", "∆": "delta", "Ω": "ohm",
    },
    money={
        "$": Money("dollar", "dollars", "cent", "cents"), "€": Money("euro", "euros", "cent", "cents"),
        "£": Money("pound", "pounds", "penny", "pence"), "¥": Money("yen", "yen"), "₹": Money("rupee", "rupees"),
        "₽": Money("rouble", "roubles"), "₩": Money("won", "won"), "¢": Money("cent", "cents"),
        "US$": Money("US dollar", "US dollars", "cent", "cents"), "C$": Money("Canadian dollar", "Canadian dollars"),
        "A$": Money("Australian dollar", "Australian dollars"), "USD": Money("US dollar", "US dollars"),
        "EUR": Money("euro", "euros"), "GBP": Money("pound", "pounds"), "JPY": Money("yen", "yen"),
        "CHF": Money("Swiss franc", "Swiss francs"), "CNY": Money("yuan", "yuan"), "₿": Money("bitcoin", "bitcoins"),
        "元": Money("yuan", "yuan"),
    },
    units=_units("""
        km/h=kilometer per hour/kilometers per hour, kph=kilometer per hour/kilometers per hour,
        mph=mile per hour/miles per hour, m/s=meter per second/meters per second,
        km²=square kilometer/square kilometers, km2=square kilometer/square kilometers, m²=square meter/square meters,
        m2=square meter/square meters, m³=cubic meter/cubic meters, m3=cubic meter/cubic meters,
        cm²=square centimeter/square centimeters, cm³=cubic centimeter/cubic centimeters, km=kilometer/kilometers,
        cm=centimeter/centimeters, mm=millimeter/millimeters, µm=micrometer/micrometers, nm=nanometer/nanometers,
        m=meter/meters, kg=kilogram/kilograms, g=gram/grams, mg=milligram/milligrams, µg=microgram/micrograms,
        lb=pound/pounds, lbs=pound/pounds, oz=ounce/ounces, ft=foot/feet, yd=yard/yards, l=liter/liters, L=liter/liters,
        ml=milliliter/milliliters, mL=milliliter/milliliters, kWh=kilowatt hour/kilowatt hours,
        MWh=megawatt hour/megawatt hours, kW=kilowatt/kilowatts, MW=megawatt/megawatts, W=watt/watts,
        mV=millivolt/millivolts, V=volt/volts, mA=milliamp/milliamps, Hz=hertz, kHz=kilohertz, MHz=megahertz,
        GHz=gigahertz, kB=kilobyte/kilobytes, KB=kilobyte/kilobytes, MB=megabyte/megabytes, GB=gigabyte/gigabytes,
        TB=terabyte/terabytes, KiB=kibibyte/kibibytes, MiB=mebibyte/mebibytes, GiB=gibibyte/gibibytes,
        kbps=kilobit per second/kilobits per second, Mbps=megabit per second/megabits per second,
        kbit/s=kilobit per second/kilobits per second, Mbit/s=megabit per second/megabits per second,
        Gbps=gigabit per second/gigabits per second, MB/s=megabyte per second/megabytes per second, dB=decibel/decibels,
        °C=degree Celsius/degrees Celsius, °F=degree Fahrenheit/degrees Fahrenheit, ℃=degree Celsius/degrees Celsius,
        °=degree/degrees, ha=hectare/hectares, h=hour/hours, hr=hour/hours, hrs=hour/hours,
        min=minute/minutes, mins=minute/minutes, sec=second/seconds, secs=second/seconds, s=second/seconds,
        ms=millisecond/milliseconds, µs=microsecond/microseconds, ns=nanosecond/nanoseconds, px=pixel/pixels,
        hPa=hectopascal/hectopascals, kPa=kilopascal/kilopascals, kcal=kilocalorie/kilocalories,
        kJ=kilojoule/kilojoules, bpm=beat per minute/beats per minute,
        rpm=revolution per minute/revolutions per minute, fps=frame per second/frames per second,
        dpi=dot per inch/dots per inch
    """),
    percent="percent",
    minus="minus",
    range_to="to",
    months=tuple(
        "January February March April May June July August September October November December".split()
    ),
    abbreviations={
        "Mr.": "Mister", "Mrs.": "Missus", "Ms.": "Miss", "Prof.": "Professor", "Rev.": "Reverend", "Gen.": "General",
        "Col.": "Colonel", "Capt.": "Captain", "Lt.": "Lieutenant", "Sgt.": "Sergeant", "Sen.": "Senator",
        "Rep.": "Representative", "Gov.": "Governor", "Pres.": "President", "Hon.": "Honorable", "Jr.": "Junior",
        "Sr.": "Senior", "Inc.": "Incorporated", "Ltd.": "Limited", "Co.": "Company", "Corp.": "Corporation",
        "Bros.": "Brothers", "vs.": "versus", "etc.": "et cetera", "e.g.": "for example", "i.e.": "that is",
        "approx.": "approximately", "dept.": "department", "Dept.": "Department", "est.": "established",
        "Ave.": "Avenue", "Blvd.": "Boulevard", "Rd.": "Road", "Mt.": "Mount", "Ft.": "Fort", "viz.": "namely",
        "a.k.a.": "also known as", "cf.": "compare", "ca.": "circa", "Jan.": "January", "Feb.": "February",
        "Apr.": "April", "Aug.": "August", "Sept.": "September", "Sep.": "September", "Oct.": "October",
        "Nov.": "November", "Dec.": "December", "w/o": "without", "w/": "with", "Esq.": "Esquire",
        "E.g.": "For example", "I.e.": "That is", "Ph.D.": "P H D", "B.C.": "B C", "A.D.": "A D", "R.I.P.": "R I P",
    },
    day_is_ordinal="all",
    magnitudes={
        "k": ("thousand", "thousand"), "K": ("thousand", "thousand"), "m": ("million", "million"),
        "M": ("million", "million"), "mn": ("million", "million"), "mln": ("million", "million"),
        "bn": ("billion", "billion"), "b": ("billion", "billion"), "B": ("billion", "billion"),
        "tn": ("trillion", "trillion"), "T": ("trillion", "trillion"), "thousand": ("thousand", "thousand"),
        "million": ("million", "million"), "billion": ("billion", "billion"), "trillion": ("trillion", "trillion"),
    },
)  # fmt: skip

GERMAN = Wording(
    symbols={
        "&": "und", "+": "plus", "=": "gleich", "<": "kleiner als", ">": "größer als", "≤": "kleiner oder gleich",
        "≥": "größer oder gleich", "≈": "ungefähr", "×": "mal", "÷": "geteilt durch", "±": "plus minus",
        "%": "Prozent", "‰": "Promille", "°": "Grad", "§": "Paragraf", "@": "at", "#": "Raute", "/": "Schrägstrich",
        "½": "ein halb", "$": "Dollar", "€": "Euro", "£": "Pfund", "¥": "Yen", "№": "Nummer",
    },
    money={
        "€": Money("Euro", "Euro", "Cent", "Cent"), "$": Money("Dollar", "Dollar", "Cent", "Cent"),
        "£": Money("Pfund", "Pfund"), "¥": Money("Yen", "Yen"), "CHF": Money("Franken", "Franken", "Rappen", "Rappen"),
        "EUR": Money("Euro", "Euro", "Cent", "Cent"), "USD": Money("US-Dollar", "US-Dollar"),
    },
    units=_units("""
        km/h=Kilometer pro Stunde, m/s=Meter pro Sekunde, km=Kilometer, m=Meter, cm=Zentimeter, mm=Millimeter,
        m²=Quadratmeter, km²=Quadratkilometer, m³=Kubikmeter, kg=Kilogramm, g=Gramm, mg=Milligramm, l=Liter,
        ml=Milliliter, °C=Grad Celsius, °=Grad, kWh=Kilowattstunde/Kilowattstunden, kW=Kilowatt, W=Watt, V=Volt,
        Hz=Hertz, kHz=Kilohertz, MHz=Megahertz, GHz=Gigahertz, MB=Megabyte, GB=Gigabyte, dB=Dezibel,
        h=Stunde/Stunden, min=Minute/Minuten, s=Sekunde/Sekunden, ms=Millisekunde/Millisekunden, ha=Hektar
    """),
    percent="Prozent",
    minus="minus",
    range_to="bis",
    months=tuple("Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()),
    abbreviations={
        "z.B.": "zum Beispiel", "z. B.": "zum Beispiel", "d.h.": "das heißt", "d. h.": "das heißt",
        "u.a.": "unter anderem", "bzw.": "beziehungsweise", "usw.": "und so weiter", "ca.": "circa", "Dr.": "Doktor",
        "Prof.": "Professor", "Hr.": "Herr", "Fr.": "Frau", "Nr.": "Nummer", "Str.": "Straße", "evtl.": "eventuell",
        "ggf.": "gegebenenfalls", "inkl.": "inklusive", "zzgl.": "zuzüglich", "Mio.": "Millionen",
        "Mrd.": "Milliarden", "Tel.": "Telefon", "vgl.": "vergleiche", "etc.": "et cetera", "St.": "Sankt",
        "max.": "maximal", "min.": "minimal",
    },
    day_is_ordinal="all",
    clock="Uhr",
    o_clock="Uhr",
    magnitudes={
        "Mio.": ("Million", "Millionen"), "Mrd.": ("Milliarde", "Milliarden"), "Tsd.": ("tausend", "tausend"),
        "Millionen": ("Million", "Millionen"), "Milliarden": ("Milliarde", "Milliarden"),
    },
)  # fmt: skip

FRENCH = Wording(
    symbols={
        "&": "et", "+": "plus", "=": "égale", "<": "inférieur à", ">": "supérieur à", "×": "fois", "%": "pour cent",
        "°": "degrés", "@": "arobase", "#": "dièse", "/": "barre oblique", "½": "un demi", "$": "dollars",
        "€": "euros", "£": "livres", "¥": "yens", "≈": "environ", "±": "plus ou moins", "§": "paragraphe",
    },
    money={
        "€": Money("euro", "euros", "centime", "centimes"), "$": Money("dollar", "dollars", "cent", "cents"),
        "£": Money("livre", "livres"), "¥": Money("yen", "yens"), "EUR": Money("euro", "euros"),
    },
    units=_units("""
        km/h=kilomètre par heure/kilomètres par heure, km=kilomètre/kilomètres, m=mètre/mètres,
        cm=centimètre/centimètres, mm=millimètre/millimètres, m²=mètre carré/mètres carrés, kg=kilogramme/kilogrammes,
        g=gramme/grammes, l=litre/litres, ml=millilitre/millilitres, °C=degré Celsius/degrés Celsius, °=degré/degrés,
        kW=kilowatt/kilowatts, Hz=hertz, min=minute/minutes, s=seconde/secondes
    """),
    percent="pour cent",
    minus="moins",
    range_to="à",
    months=tuple("janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()),
    abbreviations={
        "M.": "Monsieur", "MM.": "Messieurs", "Mme": "Madame", "Mlle": "Mademoiselle", "Dr": "Docteur",
        "p. ex.": "par exemple", "p.ex.": "par exemple", "etc.": "et cetera", "env.": "environ", "n°": "numéro",
        "N°": "numéro", "av.": "avant", "bd": "boulevard",
    },
    day_is_ordinal="first",
    clock="heures",
    o_clock="heures",
    magnitudes={
        "M": ("million", "millions"), "Md": ("milliard", "milliards"), "k": ("mille", "mille"),
        "millions": ("million", "millions"), "milliards": ("milliard", "milliards"),
    },
)  # fmt: skip

SPANISH = Wording(
    symbols={
        "&": "y", "+": "más", "=": "igual a", "<": "menor que", ">": "mayor que", "×": "por", "%": "por ciento",
        "°": "grados", "@": "arroba", "#": "almohadilla", "/": "barra", "½": "un medio", "$": "dólares",
        "€": "euros", "£": "libras", "¥": "yenes", "≈": "aproximadamente", "±": "más menos",
    },
    money={
        "€": Money("euro", "euros", "céntimo", "céntimos"), "$": Money("dólar", "dólares", "centavo", "centavos"),
        "£": Money("libra", "libras"), "¥": Money("yen", "yenes"), "EUR": Money("euro", "euros"),
    },
    units=_units("""
        km/h=kilómetro por hora/kilómetros por hora, km=kilómetro/kilómetros, m=metro/metros,
        cm=centímetro/centímetros, mm=milímetro/milímetros, m²=metro cuadrado/metros cuadrados,
        kg=kilogramo/kilogramos, g=gramo/gramos, l=litro/litros, ml=mililitro/mililitros,
        °C=grado Celsius/grados Celsius, °=grado/grados, min=minuto/minutos, s=segundo/segundos
    """),
    percent="por ciento",
    minus="menos",
    range_to="a",
    months=tuple(
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split()
    ),
    abbreviations={
        "Sr.": "señor", "Sra.": "señora", "Srta.": "señorita", "Dr.": "doctor", "Dra.": "doctora", "Ud.": "usted",
        "Uds.": "ustedes", "p. ej.": "por ejemplo", "etc.": "etcétera", "núm.": "número", "EE. UU.": "Estados Unidos",
        "EE.UU.": "Estados Unidos", "aprox.": "aproximadamente", "pág.": "página",
    },
    clock="y",
    magnitudes={"millones": ("millón", "millones"), "M": ("millón", "millones")},
)  # fmt: skip

ITALIAN = Wording(
    symbols={
        "&": "e", "+": "più", "=": "uguale a", "<": "minore di", ">": "maggiore di", "×": "per", "%": "per cento",
        "°": "gradi", "@": "chiocciola", "#": "cancelletto", "/": "barra", "$": "dollari", "€": "euro", "£": "sterline",
    },
    money={"€": Money("euro", "euro", "centesimo", "centesimi"), "$": Money("dollaro", "dollari")},
    units=_units("""
        km/h=chilometro all'ora/chilometri all'ora, km=chilometro/chilometri, m=metro/metri, cm=centimetro/centimetri,
        kg=chilogrammo/chilogrammi, g=grammo/grammi, l=litro/litri, °C=grado Celsius/gradi Celsius, °=grado/gradi
    """),
    percent="per cento",
    minus="meno",
    range_to="a",
    months=tuple(
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre".split()
    ),
    abbreviations={"Sig.": "Signor", "Dott.": "Dottor", "ecc.": "eccetera", "p.es.": "per esempio"},
    day_is_ordinal="first",
    clock="e",
)  # fmt: skip

PORTUGUESE = Wording(
    symbols={
        "&": "e", "+": "mais", "=": "igual a", "<": "menor que", ">": "maior que", "×": "vezes", "%": "por cento",
        "°": "graus", "@": "arroba", "/": "barra", "$": "dólares", "€": "euros",
    },
    money={
        "€": Money("euro", "euros", "cêntimo", "cêntimos"), "$": Money("dólar", "dólares"),
        "R$": Money("real", "reais", "centavo", "centavos"),
    },
    units=_units("""
        km/h=quilómetro por hora/quilómetros por hora, km=quilómetro/quilómetros, m=metro/metros,
        cm=centímetro/centímetros, kg=quilograma/quilogramas, g=grama/gramas, l=litro/litros,
        °C=grau Celsius/graus Celsius, °=grau/graus
    """),
    percent="por cento",
    minus="menos",
    range_to="a",
    months=tuple("janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro".split()),
    abbreviations={"Sr.": "Senhor", "Sra.": "Senhora", "Dr.": "Doutor", "Dra.": "Doutora", "etc.": "et cetera"},
)  # fmt: skip

RUSSIAN = Wording(
    symbols={
        "&": "и", "+": "плюс", "=": "равно", "<": "меньше", ">": "больше", "×": "умножить на", "%": "процентов",
        "°": "градусов", "@": "собака", "/": "дробь", "№": "номер", "$": "долларов", "€": "евро", "₽": "рублей",
        "≈": "примерно",
    },
    money={
        "₽": Money("рубль", "рублей", "копейка", "копеек"), "$": Money("доллар", "долларов"),
        "€": Money("евро", "евро"),
    },
    units=_units("""
        км/ч=километр в час/километров в час, км=километр/километров, м=метр/метров, см=сантиметр/сантиметров,
        мм=миллиметр/миллиметров, кг=килограмм/килограммов, г=грамм/граммов, л=литр/литров,
        °C=градус Цельсия/градусов Цельсия, °=градус/градусов
    """),
    percent="процентов",
    minus="минус",
    months=tuple(
        "января февраля марта апреля мая июня июля августа сентября октября ноября декабря".split()
    ),
    abbreviations={
        "т.е.": "то есть", "т. е.": "то есть", "и т.д.": "и так далее", "и т. д.": "и так далее",
        "и т.п.": "и тому подобное", "т.к.": "так как", "руб.": "рублей", "ул.": "улица", "им.": "имени",
        "тыс.": "тысяч", "млн": "миллионов", "млрд": "миллиардов",
    },
)  # fmt: skip

DUTCH = Wording(
    symbols={
        "&": "en", "+": "plus", "=": "is gelijk aan", "<": "kleiner dan", ">": "groter dan", "×": "maal",
        "%": "procent", "°": "graden", "@": "apenstaartje", "/": "schuine streep", "$": "dollar", "€": "euro",
    },
    money={"€": Money("euro", "euro", "cent", "cent"), "$": Money("dollar", "dollar", "cent", "cent")},
    units=_units("""
        km/h=kilometer per uur, km/u=kilometer per uur, km=kilometer, m=meter, cm=centimeter, kg=kilogram, g=gram,
        l=liter, °C=graden Celsius, °=graad/graden
    """),
    percent="procent",
    minus="min",
    range_to="tot",
    months=tuple(
        "januari februari maart april mei juni juli augustus september oktober november december".split()
    ),
    abbreviations={"dhr.": "de heer", "mevr.": "mevrouw", "bijv.": "bijvoorbeeld", "enz.": "enzovoort"},
    clock="uur",
    o_clock="uur",
)  # fmt: skip

_SIMPLE = {
    "pl": ("procent", "minus", "do"), "sv": ("procent", "minus", "till"), "da": ("procent", "minus", "til"),
    "no": ("prosent", "minus", "til"), "fi": ("prosenttia", "miinus", ""), "cs": ("procent", "minus", "až"),
    "sk": ("percent", "mínus", "až"), "uk": ("відсотків", "мінус", "до"), "ro": ("la sută", "minus", "până la"),
    "hu": ("százalék", "mínusz", ""), "ca": ("per cent", "menys", "a"), "id": ("persen", "minus", "sampai"),
    "vi": ("phần trăm", "âm", "đến"), "ar": ("بالمئة", "ناقص", "إلى"), "fa": ("درصد", "منفی", "تا"),
}  # fmt: skip
"""Percent, minus, and what stands between the ends of a range."""

WORDINGS: dict[str, Wording] = {
    **{
        code: Wording(percent=percent, minus=minus, range_to=to) for code, (percent, minus, to) in _SIMPLE.items()
    },
    "en": ENGLISH, "de": GERMAN, "fr": FRENCH, "es": SPANISH, "it": ITALIAN, "pt": PORTUGUESE, "ru": RUSSIAN,
    "nl": DUTCH,
}  # fmt: skip
NO_WORDING = Wording()
