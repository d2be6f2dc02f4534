"""One window of a browser for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contextcliff_dagster_tests.support.report_browser import ReportBrowser


@pytest.fixture(scope="module")
def browser() -> Iterator[ReportBrowser]:
    window = ReportBrowser()
    yield window
    window.close()
