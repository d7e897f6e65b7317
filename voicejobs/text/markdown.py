"""Markdown: what is spoken of it. Marks are covered up in place; blocks end where a listener needs a pause."""

import re

_FENCE = re.compile(r"[ \t]{0,3}(?:```+|~~~+).*")
_HEADING = re.compile(r"([ \t]{0,3}#{1,6}[ \t]+)(.*?)([ \t]#+[ \t]*)?$")
_RULE = re.compile(r"[ \t]{0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|={3,}[ \t]*)$")
_ITEM = re.compile(r"[ \t]*(?:[-*+][ \t]+(?:\[[ xX]\][ \t]+)?)")
_NUMBERED = re.compile(r"[ \t]*\d{1,3}[.)][ \t]")
_QUOTE = re.compile(r"[ \t]{0,3}(?:>[ \t]?)+")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*$")
_REFERENCE = re.compile(r"[ \t]{0,3}\[[^\]\n]{1,200}\]:[ \t]*\S+.*$")
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\n(?:(?!---[ \t]*$).*\n){0,200}---[ \t]*(?:\n|$)", re.MULTILINE)
_IMAGE_OR_LINK = re.compile(
    r"!?\[([^\[\]\n]{0,500})\](?:\([^()\n]{0,2000}(?:\([^()\n]{0,200}\)[^()\n]{0,500})?\)|\[[^\]\n]{0,200}\])"
)
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]{1,2000})>")
_CODE = re.compile(r"(`+)([^`\n]+)\1")
_STARS = re.compile(
    r"(?<![\\*\w])(\*{1,3})(?=\S)([^*\n]{1,2000}?)(?<=\S)\1(?!\*)|(?<=\w)(\*{2})(?=\S)([^*\n]{1,500}?)(?<=\S)\3"
)
_UNDERSCORES = re.compile(r"(?<![\\\w])(_{1,3})(?=\S)([^_\n]{1,2000}?)(?<=\S)\1(?!\w)")
_STRUCK = re.compile(r"~~(?=\S)([^~\n]{1,2000}?)(?<=\S)~~")
_ESCAPE = re.compile(r"\\(?=[\\`*_{}\[\]()#+\-.!|<>~])")


def mask_markdown(text: str, filler: str) -> tuple[str, list[int]]:
    """Return a text of the same length with the marks covered up by `filler`, and the ends of blocks.

    Kept to be spoken: headings, items, quotes, cells of tables, the words of links, what pictures are said to show, and
    code. Left out: rules, addresses of links, reference definitions, front matter.
    """
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    lines = [_blank(text[:start], filler)] if front else []
    ends = [start] if front else []
    place = start
    in_code = False
    for line in text[start:].splitlines(keepends=True):
        body = line.rstrip("\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029")
        if _FENCE.fullmatch(body):
            in_code = not in_code
            covered, is_block = filler * len(body), True
        elif in_code:
            covered, is_block = body, True
        else:
            covered, is_block = _line(body, filler)
        if is_block:
            ends += [place, place + len(body)]
        lines.append(covered + line[len(body) :])
        place += len(line)
    return _inline("".join(lines), filler), ends


def _blank(text: str, filler: str) -> str:
    """Cover up everything but the ends of lines."""
    return re.sub(r"[^\n]", filler, text)


def _line(body: str, filler: str) -> tuple[str, bool]:
    """Cover up the marks of one line, and tell whether the line is a block of its own."""
    quote = _QUOTE.match(body)
    lead = filler * quote.end() if quote else ""
    body = body[len(lead) :]
    if _RULE.fullmatch(body) or _TABLE_RULE.fullmatch(body) or _REFERENCE.fullmatch(body):
        return lead + filler * len(body), True
    heading = _HEADING.fullmatch(body)
    if heading is not None:
        return lead + filler * len(heading[1]) + heading[2] + filler * len(heading[3] or ""), True
    item = _ITEM.match(body)
    if item is not None:
        return lead + filler * item.end() + body[item.end() :], True
    if body.lstrip().startswith("|"):
        return lead + body.replace("|", filler, 1).replace("|", ","), True
    return lead + body, bool(_NUMBERED.match(body)) or bool(lead and not body.strip())


def _inline(text: str, filler: str) -> str:
    """Cover up links, code and emphasis."""

    def link(found: re.Match[str]) -> str:
        start, end = found.start(1) - found.start(), found.end(1) - found.start()
        return filler * start + found[1] + filler * (len(found[0]) - end)

    def both(found: re.Match[str]) -> str:
        mark, inner = (found[1], found[2]) if found[1] else (found[3], found[4])
        return filler * len(mark) + inner + filler * len(mark)

    text = _AUTOLINK.sub(link, text)
    text = _IMAGE_OR_LINK.sub(link, text)
    text = _CODE.sub(lambda found: filler * len(found[1]) + found[2] + filler * len(found[1]), text)
    text = _STARS.sub(both, _STARS.sub(both, text))
    text = _UNDERSCORES.sub(lambda found: filler * len(found[1]) + found[2] + filler * len(found[1]), text)
    text = _STRUCK.sub(lambda found: filler * 2 + found[1] + filler * 2, text)
    return _ESCAPE.sub(filler, text)
