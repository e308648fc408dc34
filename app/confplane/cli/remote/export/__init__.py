"""``confplane export`` over the API: a selection of entities, read page by page and written in one of several forms.

A form is an asynchronous generator of text, so that a million entities need only the memory of one page.
"""
