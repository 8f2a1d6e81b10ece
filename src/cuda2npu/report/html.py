"""What the pages have in common: the shell of one, escaping, tables. No network, ever."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape as _escape

from cuda2npu.report import printable

STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1060px;padding:0 1rem}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{padding:.25rem .5rem;border-bottom:1px solid #8884;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
pre{overflow:auto;padding:.6rem;border:1px solid #8884;border-radius:.4rem;font-size:12px}
code{overflow-wrap:anywhere}
svg{width:100%}svg[viewBox]{height:auto}svg text{font:11px system-ui,sans-serif;fill:currentColor}
.grid{stroke:#8886}.axis{paint-order:stroke;stroke:Canvas;stroke-width:3px}
.key{margin:0}
"""
END = "</body></html>\n"


def escape(text: str) -> str:
    """Text of the user as HTML, also between quotes."""
    return _escape("\n".join(map(printable, text.split("\n"))))


def head(title: str, style: str, script: str = "") -> str:
    """The page up to its content. Only this very script may run in it; it may be at the end."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    if script:
        digest = b64encode(sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>"
    )


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], code: bool = False) -> str:
    """A table of plain texts; ``code`` sets every cell as code."""
    start, end = ("<code>", "</code>") if code else ("", "")
    names = "".join(f"<th>{escape(name)}</th>" for name in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{start}{escape(cell)}{end}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
