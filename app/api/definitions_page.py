"""The config definitions as a page to read: KIP-21's table, rendered here, usable without scripts and without network.

The search is a form that works by itself; the script only makes it answer while one types, and lets columns be sorted.
The page's policy allows exactly this style and this script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from app.api.definition_rows import TITLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STYLE: Final = """
:root{color-scheme:light dark;font:100%/1.5 system-ui,sans-serif}
body{margin:2rem auto;max-width:80rem;padding:0 1rem}
form{display:flex;flex-wrap:wrap;gap:.5rem 1.5rem;align-items:end;position:sticky;top:0;background:Canvas;
padding:.75rem 0}
label{display:grid;font-size:.85rem}
input,select,button{font:inherit;padding:.25rem .5rem}
section{overflow-x:auto}
table{border-collapse:collapse;width:100%}
caption{text-align:left;font-size:1.25rem;font-weight:600;padding:1rem 0 .25rem}
th,td{border-bottom:1px solid color-mix(in srgb,CanvasText 20%,transparent);
padding:.4rem .6rem;text-align:left;vertical-align:top}
thead button{background:none;border:0;color:inherit;cursor:pointer;font-weight:600;padding:0}
th[aria-sort=ascending] button::after{content:" \\2191"}
th[aria-sort=descending] button::after{content:" \\2193"}
tbody th{font-weight:400}
code{font-family:ui-monospace,monospace;font-size:.9em;overflow-wrap:anywhere}
small{display:block;opacity:.8}
"""
_SCRIPT: Final = """
(function(){
"use strict";
var search=document.getElementById("search"),count=document.getElementById("count");
var rows=Array.prototype.slice.call(document.querySelectorAll("tbody tr"));
function filter(){
  var wanted=search.value.toLowerCase(),shown=0;
  rows.forEach(function(row){
    row.hidden=row.getAttribute("data-name").indexOf(wanted)<0;
    if(!row.hidden){shown+=1;}
  });
  count.textContent=shown+(shown===1?" config":" configs");
}
search.addEventListener("input",filter);
document.querySelectorAll("thead th").forEach(function(head){
  var button=document.createElement("button");
  button.type="button";
  button.textContent=head.textContent;
  head.textContent="";
  head.appendChild(button);
  button.addEventListener("click",function(){
    var table=head.closest("table"),body=table.tBodies[0];
    var down=head.getAttribute("aria-sort")==="ascending",at=head.cellIndex;
    table.querySelectorAll("thead th").forEach(function(other){other.removeAttribute("aria-sort");});
    head.setAttribute("aria-sort",down?"descending":"ascending");
    Array.prototype.slice.call(body.rows).sort(function(a,b){
      var x=a.cells[at].getAttribute("data-sort")||a.cells[at].textContent;
      var y=b.cells[at].getAttribute("data-sort")||b.cells[at].textContent;
      return (down?-1:1)*x.localeCompare(y,"en",{numeric:true});
    }).forEach(function(row){body.appendChild(row);});
  });
});
})();
"""
_COLUMNS: Final = ("Name", "Type", "Default", "Importance", "Description", "IsDynamic")
_IMPORTANCE: Final = {"HIGH": "1", "MEDIUM": "2", "LOW": "3"}
_ENTITY_TYPES: Final = {
    "": "everything",
    "topic": "topics",
    "broker": "brokers",
    "client": "producers and consumers",
    "user": "users",
    "client-id": "client-ids",
    "ip": "ips",
}
_DYNAMIC: Final = {"": "dynamic or not", "true": "dynamic", "false": "not dynamic"}


def source_hash(text: str) -> str:
    """Return the source by which a content security policy admits this inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; style-src {source_hash(_STYLE)}; script-src {source_hash(_SCRIPT)}; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""Headers that the page is sent with."""


def render(
    rows: Sequence[dict[str, Any]],
    *,
    cluster: str,
    kafka_version: str,
    entity_type: str | None,
    search: str,
    dynamic: bool | None,
) -> bytes:
    """Return the page with the rows of :func:`app.api.definition_rows.select`, and the filters that chose them."""
    chosen = "" if dynamic is None else str(dynamic).lower()
    noun = "config" if len(rows) == 1 else "configs"
    tables = "".join(_table(section, found) for section, found in groupby(rows, key=lambda row: str(row["section"])))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Config definitions - {escape(cluster)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Config definitions</h1>
<p>Kafka {escape(kafka_version)}, cluster <code>{escape(cluster)}</code>.</p>
<form method="get" role="search">
<label>Name
<input id="search" name="search" type="search" value="{escape(search)}" maxlength="100" autocomplete="off"></label>
<label>Of {_select("entityType", _ENTITY_TYPES, entity_type or "")}</label>
<label>That are {_select("dynamic", _DYNAMIC, chosen)}</label>
<button>Search</button>
<output id="count" for="search" aria-live="polite">{len(rows)} {noun}</output>
</form>
<main>{tables}</main>
<script>{_SCRIPT}</script>
</body>
</html>
""".encode()


def _select(name: str, options: dict[str, str], chosen: str) -> str:
    if chosen not in options:
        options = options | {chosen: chosen}
    items = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(text)}</option>'
        for value, text in options.items()
    )
    return f'<select name="{escape(name)}">{items}</select>'


def _table(section: str, rows: Iterable[dict[str, Any]]) -> str:
    heads = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    return (
        f'<section id="{escape(section)}"><table><caption>{escape(TITLES[section])}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(map(_row, rows))}</tbody></table></section>\n"
    )


def _row(row: dict[str, Any]) -> str:
    name = escape(row["name"])
    if row["required"]:
        default = "required"
    elif row["default"] is None:
        default = "none"
    else:
        default = f"<code>{escape(row['default'])}</code>" if row["default"] else "empty"
    dynamic = f"yes, {row['scope']}" if row["dynamic"] else "no"
    importance = row["importance"]
    return (
        f'<tr id="{escape(row["section"])}_{name}" data-name="{escape(row["name"].lower())}">'
        f'<th scope="row"><code>{name}</code></th><td>{escape(row["type"])}</td><td>{default}</td>'
        f'<td data-sort="{_IMPORTANCE[importance]}">{escape(importance.lower())}</td>'
        f"<td>{_described(row)}</td><td>{escape(dynamic)}</td></tr>\n"
    )


def _described(row: dict[str, Any]) -> str:
    link = escape(row["documentation"])
    first = f"{escape(row['description'])} " if row["description"] else ""
    notes = []
    if row["valid"]:
        notes.append(f"Valid: <code>{escape(row['valid'])}</code>")
    if row["unit"]:
        notes.append(f"In {escape(row['unit'])}")
    if row["synonyms"]:
        names = ", ".join(
            f"<code>{escape(synonym['name'])}</code>" + (f" x {synonym['factor']}" if synonym["factor"] != 1 else "")
            for synonym in row["synonyms"]
        )
        notes.append(f"Falls back on the brokers' {names}")
    if row["prefixRequired"]:
        notes.append(f"Only as <code>{escape(row['listenerPrefix'])}{escape(row['name'])}</code>")
    elif row["listenerPrefix"]:
        notes.append(f"For one listener as <code>{escape(row['listenerPrefix'])}{escape(row['name'])}</code>")
    if row["section"] == "quota":
        notes.append(f"On {escape('; '.join(row['settableOn']))}")
    if row["sensitive"]:
        notes.append("Secret: never shown")
    if row["internal"]:
        notes.append("Internal to Kafka")
    return f'{first}<a href="{link}">Kafka\'s documentation</a>' + "".join(f"<small>{note}</small>" for note in notes)
