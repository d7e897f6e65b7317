"""What is said for what is written."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.text import read_out

ENGLISH = [
    ("$200,000", "two hundred thousand dollars"),
    ("$200k", "two hundred thousand dollars"),
    ("€1.2m", "one point two million euros"),
    ("¥5000", "five thousand yen"),
    ("$3.50", "three dollars and fifty cents"),
    ("$1", "one dollar"),
    ("$0.01", "one cent"),
    ("-$5", "minus five dollars"),
    ("$5-10m", "five to ten million dollars"),
    ("5 EUR", "five euros"),
    ("12.5%", "twelve point five percent"),
    ("1,234.56", "one thousand two hundred and thirty-four point five six"),
    ("-5 °C", "minus five degrees Celsius"),
    ("120 km/h", "one hundred and twenty kilometers per hour"),
    ("1 kg", "one kilogram"),
    ("5-10 km", "five to ten kilometers"),
    ("pages 3–7", "pages three to seven"),
    ("2025-03-04", "March fourth, twenty twenty-five"),
    ("3/4/2025", "March fourth, twenty twenty-five"),
    ("24/12/2025", "December twenty-fourth, twenty twenty-five"),
    ("on 4 March 2025", "on the fourth of March, twenty twenty-five"),
    ("March 4, 2025", "March fourth, twenty twenty-five"),
    ("May 2024", "May twenty twenty-four"),
    ("2025-13-45", "two thousand and twenty-five thirteen forty-five"),
    ("14:30", "fourteen thirty"),
    ("9:05", "nine oh five"),
    ("10:45 pm", "ten forty-five P M"),
    ("3pm", "three P M"),
    ("at 3 p.m. today", "at three P M today"),
    ("in 1984", "in nineteen eighty-four"),
    ("1984 people", "one thousand nine hundred and eighty-four people"),
    ("the 1990s", "the nineteen nineties"),
    ("21st", "twenty-first"),
    ("The 90s", "The nineties"),
    ("The 2nd of May", "The second of May"),
    ("3h 20m 5s", "three hours twenty minutes five seconds"),
    ("3:30-4:30pm", "three thirty to four thirty P M"),
    ("1914–18", "nineteen fourteen to eighteen"),
    ("5'10\" tall", "five foot ten tall"),
    ("call 555-1234", "call five five five, one two three four"),
    ("~50 ~~x~~", "about fifty x"),
    ("Mon., Jan. 3, we", "Mon., January third, we"),
    ("4K and 300 K", "four K and three hundred K"),
    ("1,000th", "one thousandth"),
    ("3/4 of it", "three quarters of it"),
    ("½", "one half"),
    ("007", "zero zero seven"),
    ("call 555-0100", "call five five five, zero one zero zero"),
    ("+1 (555) 010-9999", "plus one, five five five, zero one zero, nine nine nine nine"),
    ("200-1000 things", "two hundred to one thousand things"),
    ("v1.2.3", "v one point two point three"),
    ("1234567890123456", "one two three four five six seven eight nine zero one two three four five six"),
    ("Dr. Smith of St. John", "Doctor Smith of Saint John"),
    ("5 Main St. near it", "five Main Street near it"),
    ("e.g. this, etc.", "for example this, et cetera."),
    ("No. 5", "number five"),
    ("No. I won't.", "No. I won't."),
    ("Henry VIII", "Henry the eighth"),
    ("Chapter IV", "Chapter four"),
    ("John I know.", "John I know."),
    ("the FBI and NASA", "the F B I and NASA"),
    ("the U.S. and it", "the U S and it"),
    ("COVID-19", "COVID nineteen"),
    ("word399", "word three hundred and ninety-nine"),
    ("a.b@example.com", "a dot b at example dot com"),
    (
        "See https://example.com/a?b=c&d=1!",
        "See example dot com slash a question mark b equals c and d equals one!",
    ),
    ("5 < 6", "five is less than six"),
    ("<5 %", "less than five percent"),
    ("x<=3", "x is less than or equal to three"),
    ("a > b", "a is greater than b"),
    ("AT&T", "AT and T"),
    ("1+1=2", "one plus one equals two"),
    ("5 - 3", "five minus three"),
    ("3*4", "three times four"),
    ("C# and C++", "C sharp and C plus plus"),
    ("#5 #tag", "number five hashtag tag"),
    ("Hello 😂👍🏽👨‍👩‍👧 world ❤️", "Hello world"),
    ("she said – really", "she said, really"),
    ("“Don’t”", "“Don't”"),
    ("１２ ﬁsh", "twelve fish"),
]  # fmt: skip

OTHERS = [
    ("de", "1.234,50 €", "eintausendzweihundertvierunddreißig Euro und fünfzig Cent"),
    ("de", "am 3. Oktober 2025 um 14:30 Uhr", "am dritten Oktober zweitausendfünfundzwanzig um vierzehn Uhr dreißig"),
    ("de", "12,5 %, z.B. 5 km/h", "zwölf Komma fünf Prozent, zum Beispiel fünf Kilometer pro Stunde"),
    ("fr", "le 1er mars à 14h30", "le premier mars à quatorze heures trente"),
    ("fr", "1 234,5 km", "mille deux cent trente-quatre virgule cinq kilomètres"),
    ("es", "el 4 de marzo de 2025", "el cuatro de marzo de dos mil veinticinco"),
    ("es", "1 kg & 5 €", "un kilogramo y cinco euros"),
    ("it", "3,5 kg", "tre virgola cinque chilogrammi"),
    ("ru", "12,5 %", "двенадцать целых пять десятых процентов"),
    ("pl", "12,5%", "dwanaście przecinek pięć procent"),
    ("en-GB", "3/4/2025", "April third, twenty twenty-five"),
    ("ja", "25個", "二十五個"),
    ("zh", "2025年，12.5%", "2025年，12.5%"),
    ("xx", "5 & 6", "5 & 6"),
]


@pytest.mark.parametrize(("written", "said"), ENGLISH)
def test_english_is_read_out(written: str, said: str) -> None:
    """Numbers, signs, abbreviations and addresses become the words that a reader says."""
    assert read_out(written, "en") == said


@pytest.mark.parametrize(("language", "written", "said"), OTHERS)
def test_other_languages_are_read_out(language: str, written: str, said: str) -> None:
    """Other languages get what their tables and num2words know, and keep the rest as it is."""
    assert read_out(written, language) == said


_PARTS = st.sampled_from(
    """
    0 1 7 12 1984 3.5 , . : ; - – / % $ € £ k m km °C < > = & + # @ ( ) a B word Dr. No. U.S. st th IV :30 pm 3/4 é ß
    你 😂 ½ ² \u200d ' " www. x@y.com 555-0100 $5 1,000 May March
    """.split()
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_PARTS, st.sampled_from(["", " "])), max_size=30))
def test_english_leaves_no_digit_and_no_sign(parts: list[tuple[str, str]]) -> None:
    """Whatever is put together, no digit and no sign is left for an engine to guess at, and growth is bounded."""
    text = "".join(part + blank for part, blank in parts)
    said = read_out(text, "en")
    assert not re.search(r"[\d<>&%$=+#@/*_|]", said), said
    assert len(said) <= 40 * len(text) + 40


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["en", "de", "fr", "ru", "zh", "ja", "pl", "ar", "xx", ""]))
def test_any_text_is_read_out_on_one_line(text: str, language: str) -> None:
    """No text makes it fail, and what comes out is one line without blanks at its ends."""
    said = read_out(text, language)
    assert said == " ".join(said.split())


@pytest.mark.parametrize("word", ["and", "Berlin", "naïve", "it's", "well-known", "Ångström", "mother-in-law"])
def test_plain_words_stay(word: str) -> None:
    """A word without numbers and signs is said as it is written."""
    assert read_out(word, "en") == word
