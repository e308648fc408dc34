"""The operations of an edit in the console that is proposed as a change request."""

from __future__ import annotations

from confplane.console.edit_form import EntityEdit, FormField
from confplane.console.proposal import proposed_edit


def test_an_edit_sets_what_differs_from_what_was_shown_and_deletes_what_is_gone() -> None:
    shown = {"same": "1", "changed": "2", "gone": "3"}
    fields = {key: FormField(key, None, value) for key, value in shown.items()}
    fields |= {key: FormField(key, None, "", secret=True) for key in ("kept.password", "typed.password")}
    edit = EntityEdit("configs", "broker=1", "etag", fields)
    wanted = {"same": "1", "changed": "20", "new": "4", "kept.password": None, "typed.password": "hush"}
    assert proposed_edit(edit, wanted) == {
        "facet": "configs",
        "id": "broker=1",
        "ops": [
            {"key": "changed", "op": "SET", "value": "20"},
            {"key": "new", "op": "SET", "value": "4"},
            {"key": "typed.password", "op": "SET", "value": "hush"},
            {"key": "gone", "op": "DELETE"},
        ],
    }
