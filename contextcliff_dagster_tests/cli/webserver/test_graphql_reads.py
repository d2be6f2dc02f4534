"""A GET of GraphQL only reads."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.cli.webserver.services import check_read
from contextcliff_dagster.web_guard import Refused

CHANGES = [
    "mutation{a}",
    "mutation M($x: Int = 1) @d { a(x: $x) }",
    "subscription{a}",
    "query Q{a} mutation M{b}",
    "# query\n\ufeffmutation{a}",
    "fragment F on T{a} ,,, mutation{...F}",
]
READS = ["{a}", "query mutation{a}", '{a(x:"mutation{b}")}', "query Q{mutation:a}", ""]


@pytest.mark.parametrize("document", CHANGES)
@pytest.mark.parametrize("path", ["/graphql", "/graphql/"])
def test_what_changes_something_is_refused(document: str, path: str) -> None:
    for query in ({"query": document}, {"query": ["{a}", document]}, {"query": [document, "{a}"]}):
        with pytest.raises(Refused) as refusal:
            check_read(path, urlencode(query, doseq=True))
        assert refusal.value.status == 405


@pytest.mark.parametrize("document", READS)
def test_what_reads_passes(document: str) -> None:
    check_read("/graphql", urlencode({"query": document, "variables": "{}"}))
    check_read("/runs", urlencode({"query": "mutation{a}"}))


@given(st.text())
def test_any_text_passes_or_is_refused(text: str) -> None:
    for query in (text, urlencode({"query": text})):
        with suppress(Refused):
            check_read("/graphql", query)


@pytest.mark.parametrize("document", ["mutation", "{", "{a" * 20_000, "mutation{a" + "{a" * 300])
def test_what_cannot_be_read_is_refused(document: str) -> None:
    with pytest.raises(Refused) as refusal:
        check_read("/graphql", urlencode({"query": document}))
    assert refusal.value.status == 400
