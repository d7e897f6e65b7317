"""Language tags: `en`, `en-GB`, `pt_BR`."""


def base_language(tag: str) -> str:
    """Return the language of a tag in lower case, without region or script."""
    return tag.replace("_", "-").partition("-")[0].lower()


def region(tag: str) -> str:
    """Return the region of a tag in upper case; empty where it names none."""
    return tag.replace("_", "-").partition("-")[2].upper()
