"""Abbreviations without their full stops: those after which a sentence goes on, and those that may end it."""

NEVER_END: dict[str, frozenset[str]] = {
    "any": frozenset("dr prof st mr mrs ms vs cf fig vol al".split()),
    "en": frozenset(
        "e.g i.e mt ft gen col capt lt sgt sen rep gov pres rev hon messrs no nos p pp sec ch eq approx dept est ext"
        " viz ca art jan feb apr jun jul aug sep sept oct nov dec".split()
    ),
    "de": frozenset(
        "z.b d.h u.a i.d.r o.ä z.t bzw ca evtl ggf hr hrn fr frl nr abs str tel vgl sog inkl zzgl jan feb mär apr"
        " jun jul aug sep sept okt nov dez bd s art abb kap mind max min geb gest".split()
    ),
    "fr": frozenset(
        "m mm mme mlle mgr me p.ex env chap tél av bd éd janv févr avr juil sept oct nov déc art p".split()
    ),
    "es": frozenset("sr sra srta dra d da ud uds p.ej núm pág págs cap tel avda ej aprox art".split()),
    "it": frozenset("sig sig.ra sig.na dott dott.ssa ing avv arch p.es pag pagg cap tel art ca n".split()),
    "pt": frozenset("sr sra srta dra p.ex pág págs cap tel av núm art n".split()),
    "nl": frozenset("dhr mevr mw ir ing drs mr bijv o.a d.w.z m.b.t i.p.v nr blz tel ca resp incl".split()),
    "pl": frozenset("np m.in tzn tj ul al prof inż mgr nr str tel ok ks pt".split()),
    "ru": frozenset("т.е т.к т.н т.п ул пр д им г гл рис стр см тел тыс млн млрд руб коп проф акад".split()),
    "uk": frozenset("т.з вул ім м гл рис стор див тел тис млн млрд грн проф акад".split()),
    "sv": frozenset("t.ex bl.a d.v.s s.k ca kap nr tel resp".split()),
}

MAY_END: dict[str, frozenset[str]] = {
    "any": frozenset("etc inc ltd co corp jr sr a.m p.m u.s u.k".split()),
    "en": frozenset("ave blvd rd bros ph.d b.c a.d esq".split()),
    "de": frozenset("usw u.s.w gmbh bzgl".split()),
    "fr": frozenset(("cie",)),
    "es": frozenset("ee.uu s.a cía".split()),
    "ru": frozenset("т.д др пр гг вв".split()),
}

ORDINAL_DOT = frozenset("de da no nn fi hu cs sk sl hr sr et lv is pl tr lb bs mk".split())
"""Languages that write ordinals as digits with a full stop."""

STARTERS: dict[str, frozenset[str]] = {
    "en": frozenset(
        "The A An He She It We They You This That These Those There Here In On At But And So Then When If As For After"
        " Before His Her Its Our Their My Your What Who Why How Where Not No Yes However Meanwhile Now".split()
    ),
    "de": frozenset("Der Die Das Ein Eine Er Sie Es Wir Ihr Und Aber Dann Als Wenn Dies Diese Hier Da Im In".split()),
    "fr": frozenset("Le La Les Un Une Il Elle Ils Elles On Nous Vous Et Mais Puis Ce Cette Ces Dans En".split()),
    "es": frozenset("El La Los Las Un Una Él Ella Ellos Y Pero Luego Este Esta Esto En".split()),
}
"""Words that begin a sentence far oftener than they follow an abbreviation inside one."""
