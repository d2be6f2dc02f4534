"""A missing tool skips a test with a reason; where it is required, it fails the test."""

from __future__ import annotations

import pytest

from contextcliff_dagster_tests.support import requirements


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(requirements._CHECKS, "browser", lambda: "needs chromium")
    monkeypatch.delenv(requirements.REQUIRE_VARIABLE, raising=False)


@pytest.mark.usefixtures("nothing_installed")
def test_missing_skips_with_the_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="needs chromium"):
        requirements.require("browser")


@pytest.mark.usefixtures("nothing_installed")
def test_missing_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(requirements.REQUIRE_VARIABLE, "postgres, browser")
    with pytest.raises(pytest.fail.Exception, match=r"required here.*needs chromium"):
        requirements.require("browser")


def test_what_is_there_neither_skips_nor_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(requirements._CHECKS, "browser", lambda: None)
    requirements.require("browser")


def test_an_unknown_requirement_is_a_mistake_in_the_test() -> None:
    with pytest.raises(KeyError):
        requirements.require("quantum computer")
