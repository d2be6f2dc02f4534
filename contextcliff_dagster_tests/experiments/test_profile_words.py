"""What a study's profile says of its task and of a measurement that goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.experiments.common.records import read_records
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.length_profile import profile_and_report
from contextcliff_dagster.experiments.length_profile.profile_and_report import (
    _copied,
    profile_campaign,
)
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import load_models
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study


def manifest_of(text: str, **known: object) -> SimpleNamespace:
    """Forty questions, each with its own answer and document."""
    examples = [Example(f"e{i}", f"d{i}", "?", (f"item {i}",), "t", known) for i in range(40)]
    return SimpleNamespace(
        bins=[SimpleNamespace(bin="b00")],
        planned=lambda bin, n: [SimpleNamespace(example=one) for one in examples],
        document_text=lambda document: text.format(document.removeprefix("d")),
    )


def test_answers_that_stand_in_the_document_are_copied() -> None:
    assert _copied(manifest_of("There lies item {}.")) == 1.0  # type: ignore[arg-type]
    assert _copied(manifest_of("There lies nothing of {}.")) == 0.0  # type: ignore[arg-type]


def test_what_takes_two_places_is_not_merely_copied() -> None:
    for known in ({"level": 2}, {"inter_evidence_tokens": 30}):
        assert _copied(manifest_of("There lies item {}.", **known)) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("verify", [True, False])
def test_a_server_whose_certificate_is_not_checked_is_a_warning_of_the_report(
    verify: bool, measured: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {
        name: entry.model_copy(update={"verify": verify}) for name, entry in load_models().items()
    }
    monkeypatch.setattr(profile_and_report, "load_models", lambda: entries)
    with StudyRun.open(measured, store) as run:
        records = read_records(measured, store, run.campaign)
        profiles = profile_campaign(run, records, {})
        assert profiles
        for profile in profiles:
            warned = any("certificate is not checked" in text for text in profile.cliffs.warnings)
            assert warned is not verify


def test_too_few_answers_say_whether_measuring_still_runs(
    measured: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reasons(run: StudyRun) -> list[str]:
        records = read_records(measured, store, run.campaign)
        return [one.cliffs.safe_cap_reason for one in profile_campaign(run, records, {})]

    with StudyRun.open(measured, store) as run:
        assert all(reason.startswith("Too few examples") for reason in reasons(run))
        assert not any("still runs" in reason for reason in reasons(run))
        monkeypatch.setattr(
            Ledger, "claimed", lambda self, keys: dict.fromkeys(keys, self.backend.owner)
        )
        assert all(reason.endswith("Measuring still runs.") for reason in reasons(run))
