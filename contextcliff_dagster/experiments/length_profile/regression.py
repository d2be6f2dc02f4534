"""The pinned baseline of a study, and the comparison of the newest campaign with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    SCHEMA_VERSION,
    FailureTag,
    StoreError,
    StudyError,
)
from contextcliff_dagster.experiments.common.records import read_records
from contextcliff_dagster.experiments.common.study_run import StudyRun, in_order
from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
from contextcliff_dagster.inference.ledger.campaigns import SENTINEL, recorded_identity
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.store import Store, write_atomic, write_json
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import require_length_profile

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.contrast import Pairs
    from contextcliff_dagster.analysis.regression import Shrink
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.reporting.sections import Block, Cell

COMPLETE_SHARE = 0.8
"""A campaign is judged only with this fraction of the baseline's examples, because repeated
judgements while its answers come in would be many tests instead of one."""
LEAST_EXAMPLES = 30
MOST_RUNS = 60  # newest runs to estimate the variation of flips


@dataclass(frozen=True, slots=True)
class Dismissal:
    """The dismissal of a false alarm: reason and date."""

    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """The campaign with which later campaigns are compared.

    ``models``: model -> serving identity; ``dismissed``: campaign -> dismissal of its alarm.
    """

    study: str
    campaign: str
    set_at: str
    models: dict[str, str | None]
    dismissed: dict[str, Dismissal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Regression:
    """A comparison of a campaign with the baseline, by model.

    ``shrinks``: results of the test; ``unjudged``: why there is none; ``changes``: fields of its
    serving identity that differ, ``field: before -> now``, where both campaigns have one.
    """

    baseline: str | None
    campaign: str
    shrinks: dict[str, Shrink] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    dismissed: Dismissal | None = None

    @property
    def shrunk(self) -> list[str]:
        """Return the models that became worse; empty if the alarm is dismissed."""
        if self.dismissed is not None:
            return []
        return [model for model, shrink in self.shrinks.items() if shrink.shrunk]

    @property
    def sentence(self) -> str:
        if self.baseline is None:
            return "No baseline is pinned (`contextcliff baseline set`): nothing to compare with."
        if self.baseline == self.campaign:
            return f"Campaign {self.campaign} is the pinned baseline itself."
        sentences = [_sentence_of(model, self, shrink) for model, shrink in self.shrinks.items()]
        if self.dismissed is not None:
            on = self.dismissed.at.partition("T")[0]
            sentences.append(f"Dismissed as a false alarm on {on}: {self.dismissed.reason}.")
        sentences += [f"{model} is not judged: {why}." for model, why in self.unjudged.items()]
        sentences += _few_runs(self.shrinks.values())
        return " ".join(sentences) or f"No model of the baseline {self.baseline} was measured."

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "baseline": self.baseline,
            "campaign": self.campaign,
            "shrunk": self.shrunk,
            "models": {model: asdict(shrink) for model, shrink in self.shrinks.items()},
            "unjudged": dict(self.unjudged),
            "changes": dict(self.changes),
            "dismissed": asdict(self.dismissed) if self.dismissed else None,
            "sentence": self.sentence,
        }


def pin_baseline(study: Study, store: Store, campaign: str) -> Baseline:
    """Make ``campaign`` the baseline of ``study``, replacing any earlier baseline.

    Raises:
        StoreError: the campaign has no profile of the current sample, or the store is read-only.
    """
    cliffs = read_cliffs(study, store, campaign)
    models = {result.model: result.identity for result in cliffs}
    try:
        before = read_baseline(study, store)
    except StoreError:  # damaged: replace it
        before = None
    dismissed = before.dismissed if before and before.campaign == campaign else {}
    return _kept(Baseline(study.name, campaign, _now(), models, dismissed), store)


def dismiss_alarm(study: Study, store: Store, regression: Regression, reason: str) -> Regression:
    """Dismiss the alarm of a campaign, which then counts as a run of the unchanged model.

    Raises:
        StudyError: there is no alarm, or ``reason`` is empty.
        StoreError: the store is read-only.
    """
    reason = " ".join(reason.split()).rstrip(".")
    if not reason:
        raise StudyError("A dismissed alarm needs a reason: --reason TEXT.")
    if not regression.shrunk and regression.dismissed is None:
        raise StudyError(f"There is no alarm to dismiss. {regression.sentence}")
    pinned, dismissal = require_baseline(study, store), Dismissal(reason, _now())
    dismissed = {**pinned.dismissed, regression.campaign: dismissal}
    _kept(replace(pinned, dismissed=dismissed), store)
    return replace(regression, dismissed=dismissal)


def _kept(baseline: Baseline, store: Store) -> Baseline:
    file = store.baseline_file(baseline.study)
    write_json(file, {"schema_version": SCHEMA_VERSION, **asdict(baseline)})
    return baseline


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_baseline(study: Study, store: Store) -> Baseline | None:
    """Return the pinned baseline, if any.

    Raises:
        StoreError: its file is damaged.
    """
    path = store.baseline_file(study.name)
    try:
        data = json.loads(path.read_bytes())
        dismissed = {name: Dismissal(**entry) for name, entry in data.get("dismissed", {}).items()}
        of, campaign, at = (str(data[key]) for key in ("study", "campaign", "set_at"))
        return Baseline(of, campaign, at, dict(data["models"]), dismissed)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} is damaged ({error}); pin the baseline again with `contextcliff baseline set "
            f"{study.name} --campaign NAME`."
        ) from error


def regression_of(run: StudyRun) -> Regression:
    """Return the comparison of the campaign with the pinned baseline and what changed since."""

    def judged() -> Regression:
        regression = judge_regression(run.study, run.store, run.manifest, run.campaign)
        return with_changes(regression, run.study, run.ledger)

    return run.once("regression", judged)


def judge_regression(study: Study, store: Store, manifest: Manifest, campaign: str) -> Regression:
    """Compare ``campaign`` with the pinned baseline, model by model, paired by example.

    Campaigns between the two are judged first: if a model has not shrunk, or its alarm is
    dismissed, they are used to estimate how its flips vary.

    Raises:
        StoreError: the campaign has no records, or the baseline's file is damaged.
    """
    from contextcliff_dagster.analysis.contrast import pair_records
    from contextcliff_dagster.analysis.regression import RegressionSettings, find_shrink

    pinned = read_baseline(study, store)
    if pinned is None or pinned.campaign == campaign:
        return Regression(pinned.campaign if pinned else None, campaign)
    now = read_records(study, store, campaign)
    try:
        then = read_records(study, store, pinned.campaign)
    except StoreError:
        why = f"the records of {pinned.campaign} are gone (`contextcliff report` rebuilds them)"
        return Regression(pinned.campaign, campaign, unjudged=dict.fromkeys(pinned.models, why))
    section = study.regression
    settings = RegressionSettings(section.flip_rate, section.yearly_error, section.runs_per_year)
    unchanged: dict[str, list[Pairs]] = {}
    # The current campaign is the last.
    for name, records in (*_runs_between(study, store, then, now), (campaign, now)):
        models = in_order(study, set(pinned.models) & set(records["model"].unique()))
        shrinks, unjudged = {}, {}
        for model in models:
            before, after = then[then["model"] == model], records[records["model"] == model]
            if why_not := _incomparable(before, after):
                unjudged[model] = why_not
                continue
            pairs = pair_records(before, refused_as_lost(after), manifest.bins)
            examples = int(pairs.a.n.sum()) if pairs.paired else 0
            known = examples + pairs.only_a
            if examples < max(LEAST_EXAMPLES, COMPLETE_SHARE * known):
                unjudged[model] = f"{examples} of the baseline's {known} examples have an answer"
                continue
            alpha, others = settings.alpha(len(models)), unchanged.setdefault(model, [])
            shrink = find_shrink(
                pairs,
                alpha,
                unchanged=others,
                flip_rate=settings.flip_rate,
                chance=study.analysis_settings().chance,
            )
            shrinks[model] = shrink
            if not shrink.shrunk or name in pinned.dismissed:
                others.append(pairs)
    dismissed = pinned.dismissed.get(campaign)
    return Regression(pinned.campaign, campaign, shrinks, unjudged, dismissed=dismissed)


def with_changes(regression: Regression, study: Study, ledger: Ledger) -> Regression:
    """Add the differences between the two campaigns' serving identities, as ``changes``."""
    changes = {}
    for model in (*regression.shrinks, *regression.unjudged):
        then = recorded_identity(ledger, study.name, regression.baseline or "", model)
        now = recorded_identity(ledger, study.name, regression.campaign, model)
        if then is not None and now is not None:
            changes[model] = then.differences(now)
    return replace(regression, changes=changes)


def _runs_between(
    study: Study, store: Store, then: pd.DataFrame, now: pd.DataFrame
) -> list[tuple[str, pd.DataFrame]]:
    """Return name and records of campaigns that ended between ``then`` and ``now``, in order."""
    runs = []
    for folder in store.campaign_dir(EVAL_RECORDS.name, study.name, "any").parent.glob("*=*"):
        name = folder.name.partition("=")[2]
        if not name.startswith(SENTINEL):
            with suppress(StoreError):  # damaged or emptied: ignore it
                records = read_records(study, store, name)
                runs.append((records["finished_at"].max(), name, records))
    first, last = then["finished_at"].max(), now["finished_at"].max()
    between = sorted((run for run in runs if first < run[0] < last), key=lambda run: run[:2])
    return [(name, records) for _, name, records in between[-MOST_RUNS:]]


def require_baseline(study: Study, store: Store) -> Baseline:
    """Return the pinned baseline; raise StudyError if there is none, or no corpus."""
    require_length_profile(study)
    if (pinned := read_baseline(study, store)) is not None:
        return pinned
    raise StudyError(
        f"Study {study.name!r} has no pinned baseline; pin one with `contextcliff baseline set "
        f"{study.name}`."
    )


def refused_as_lost(records: pd.DataFrame) -> pd.DataFrame:
    """Score prompts that did not fit the window 0, because their answers are lost.

    Calls that failed in transit or were cut by the server stay unscored: the model is not at fault.
    """
    refused = records["failure"].eq(FailureTag.CONTEXT_OVERFLOW.value)
    if not refused.any():
        return records
    score = records["score"].where(~refused, 0.0)
    return records.assign(score=score, failure=records["failure"].mask(refused, None))


def _incomparable(before: pd.DataFrame, after: pd.DataFrame) -> str | None:
    if not len(before):
        return "the baseline has no records of it"
    if set(before["recipe_hash"]) != set(after["recipe_hash"]):
        return "its requests differ from the baseline's; pin a new one"
    return None


def _few_runs(shrinks: Iterable[Shrink]) -> list[str]:
    """Return a warning if too few runs of the unchanged model are known; else empty."""
    from contextcliff_dagster.analysis.regression import LEAST_RUNS

    run_counts = [shrink.runs for shrink in shrinks if shrink.runs < LEAST_RUNS]
    return [
        f"Estimating how flips vary takes {LEAST_RUNS} earlier runs of the unchanged model, and "
        f"there are {runs}: until then, a week with unusually many flips fails the check."
        for runs in run_counts[:1]
    ]


def _sentence_of(model: str, of: Regression, shrink: Shrink) -> str:
    means = f"mean score {shrink.before:.2f} before, {shrink.now:.2f} now, n = {shrink.n:,}"
    if not shrink.shrunk:
        return (
            f"{model} is not worse in {of.campaign} than in {of.baseline} beyond noise ({means}; "
            f"p = {shrink.p_value:.2g}, limit {shrink.alpha:.2g})."
        )
    return (
        f"{model} has declined in {of.campaign} against {of.baseline}: between "
        f"{shrink.from_tokens:,} and {shrink.to_tokens:,} tokens {shrink.lost} of {shrink.right} "
        f"right answers turned wrong and {shrink.gained} turned right ({means}; "
        f"p = {shrink.p_value:.2g}).{_what_changed(of.changes.get(model))}"
    )


def _what_changed(differences: list[str] | None) -> str:
    if differences is None:
        return ""
    if not differences:
        return " Its serving identity is the same."
    return f" Its serving identity has changed: {'; '.join(differences)}."


_MOST_DRAWN = 3
"""Most models whose curves are drawn, before and now; declined models come first."""


def regression_page(study: Study, store: Store, campaign: str) -> Path:
    return store.report_dir(study.name, campaign) / "regression.html"


def write_regression(regression: Regression, study: Study, store: Store) -> Path | None:
    """Write ``regression.html`` into the campaign's report; return None if nothing was compared.

    In that case an earlier page is removed. A store that cannot be written gets no page, because
    the check does not need it.
    """
    file = regression_page(study, store, regression.campaign)
    if not regression.shrinks and not regression.unjudged:
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return None
    from contextcliff_dagster.reporting.comparison import curves_html
    from contextcliff_dagster.reporting.html.render import blocks_html, html_page
    from contextcliff_dagster.reporting.sections import DataTable, Fold, Paragraph, Section

    rows: list[list[Cell]] = [
        [
            model,
            "declined" if shrink.shrunk else "not worse beyond noise",
            f"{shrink.before:.2f}",
            f"{shrink.now:.2f}",
            shrink.n,
            f"{shrink.from_tokens:,} to {shrink.to_tokens:,}",
            f"{shrink.lost} of {shrink.right}",
            shrink.gained,
            f"{shrink.p_value:.2g} ({shrink.alpha:.2g})",
        ]
        for model, shrink in regression.shrinks.items()
    ]
    columns = ["model", "against the baseline", "mean before", "mean now", "examples"]
    columns += ["clearest losses at, tokens", "right answers lost there", "gained there"]
    table = DataTable([*columns, "p (limit)"], rows, right=(2, 3, 4, 7))
    note = (
        "Some answers change by chance (the study's flip_rate); a decline exceeds that. The limit "
        "keeps the false alarms of a year, over its runs and models, within yearly_error."
    )
    unjudged = [f"{model} is not judged: {why}." for model, why in regression.unjudged.items()]
    models = sorted(regression.shrinks, key=lambda model: not regression.shrinks[model].shrunk)
    campaigns = [name for name in (regression.baseline, regression.campaign) if name]
    known: dict[tuple[str, str], Cliffs] = {}
    for campaign in campaigns:
        with suppress(StoreError):  # gone, or of another sample or request: no curve
            known |= {(c.model, campaign): c for c in read_cliffs(study, store, campaign)}
    pairs = [(model, campaign) for model in models[:_MOST_DRAWN] for campaign in campaigns]
    names = [f"{model} ({campaign})" for model, campaign in pairs]
    curves, picture = curves_html([known.get(pair) for pair in pairs], names)
    title = f"{study.name}: {regression.campaign} against {regression.baseline}"
    head = blocks_html([Paragraph(regression.sentence)])
    blocks: list[Block] = [table, *map(Paragraph, unjudged), Paragraph(note)]
    fold = Fold("How sure is it?", [Section("The test", blocks, 3)])
    try:
        write_atomic(file, html_page(title, head + curves, [fold], picture).encode())
    except StoreError:
        return None
    return file
