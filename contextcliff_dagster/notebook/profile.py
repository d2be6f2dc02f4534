"""`profile`: measure a study or your own documents, and return one result per model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from contextcliff_dagster.cli.display.output import ProgressBar, dagster_log, money
from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.cli.study_selection import (
    agreed,
    as_asked,
    campaign_shared,
    choose_study,
    keep_definition,
)
from contextcliff_dagster.contracts import BudgetError, DataError
from contextcliff_dagster.contracts.results import Metrics
from contextcliff_dagster.corpora.readers.rows import is_url
from contextcliff_dagster.experiments.common.answers import read_answers
from contextcliff_dagster.experiments.common.preparation import find_frozen, load_frozen
from contextcliff_dagster.experiments.common.records import read_records
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.inference.engines.base import token_count
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import Progress, RunSummary
from contextcliff_dagster.notebook.results import Result, Results
from contextcliff_dagster.reporting.report_files import ReportFiles
from contextcliff_dagster.run.study import Prepared, Profiled, prepare_study, profile_study
from contextcliff_dagster.store import Store, read_result
from contextcliff_dagster.studies import Study, read_studies

Names = str | Sequence[str]


class StudyResults(Results):
    """The results of one campaign of a study, by the model's name.

    Attributes:
        study: the study as measured.
        campaign: the dated measurement.
        files: paths of the report: ``files.html``, ``files.md``, ``files.json``, ``files.png``.
        calls: the calls sent this time, by model; empty if everything was measured already.
    """

    def __init__(self, profiled: Profiled, store: Store, results: Mapping[str, Result]) -> None:
        super().__init__(results)
        self.study: Study = profiled.study
        self.campaign: str = profiled.campaign
        self.files: ReportFiles = profiled.report
        self.calls: Mapping[str, RunSummary] = profiled.calls
        self._store = store

    def answers(self, bins: Sequence[str] | None = None) -> pd.DataFrame:
        """Return questions, accepted answers, answers and scores: one row per answer.

        Args:
            bins: only these length bins, such as ``["b09"]``; all when None.

        Raises:
            StoreError: a table or the sample is damaged.
        """
        with StudyRun.open(self.study, self._store, self.campaign) as run:
            frame: pd.DataFrame = read_answers(run, list(self), bins).to_pandas()
        return frame


def profile(
    study: Study | str | Path,
    model: Names | None = None,
    *,
    questions: str | None = None,
    task: Names = (),
    samples_per_bin: int | None = None,
    questions_per_document: int | None = None,
    replicates: int | None = None,
    prompt: str | Path | None = None,
    score: Names = (),
    tolerance: float | None = None,
    seed: int | None = None,
    campaign: str | None = None,
    budget_usd: float | None = None,
    yes: bool = False,
    trust: bool = False,
    on_progress: Callable[[str, Progress], None] | None = None,
) -> StudyResults:
    """Measure the missing part of a study and analyse it, like ``contextcliff profile``.

    Finished calls are saved in the command line's store and are never repeated.

    Args:
        study: a `Study`, the name of one, its YAML file, or your own data: a file of questions, a
            folder of documents, a URL.
        model: names in models.yaml; None for the study's. Required for your own data.
        questions: for documents, their table of questions, or ``recall``.
        task: measure only questions of these tasks.
        samples_per_bin, questions_per_document, seed: values that override the study's.
        replicates: how often to ask each question, each time in other words.
        prompt: a file with the prompt's template.
        score: ``em``, ``f1``, ``contained``, or a scorer's name.
        tolerance: drop from the baseline that still counts as safe, .05 to .5.
        campaign: name of the campaign; None for the current one.
        budget_usd: spending limit in USD; None for the study's.
        yes: go ahead if the estimate is unknown, or above the study's limit for asking first.
        trust: let a study file from elsewhere read files outside its folder.
        on_progress: called with the model's name while its calls run; None shows a progress bar.

    Raises:
        ContextCliffError: measuring failed; nothing measured is lost. `DataError`: ``study`` does
            not exist. `BudgetError`: the cost needs ``yes`` or ``budget_usd``.
    """
    for name, value in (
        ("samples_per_bin", samples_per_bin),
        ("questions_per_document", questions_per_document),
        ("replicates", replicates),
        ("seed", seed),
    ):
        if value is not None and token_count(value) is None:
            raise DataError(f"{name} is {value!r}; give a whole number, 0 or more.")
    if budget_usd is not None and not _is_amount(budget_usd):
        raise DataError(f"budget_usd is {budget_usd!r}; give an amount in USD, 0 or more.")
    store = Store.default()
    options = _options(
        study,
        models=_texts("model", model),
        tasks=_texts("task", task),
        questions=questions,
        samples_per_bin=samples_per_bin,
        questions_per_document=questions_per_document,
        replicates=replicates,
        prompt=None if prompt is None else Path(prompt),
        score=_texts("score", score),
        tolerance=tolerance,
        seed=seed,
        trust_study=trust,
    )
    given_study = study if not isinstance(study, str | Path) else None
    if given_study is not None:
        chosen = given_study if seed is None else given_study.with_seed(seed)
    else:
        chosen = choose_study(options)
        campaign = campaign or campaign_shared(chosen, options, store)
    requested = as_asked(chosen, options)
    with dagster_log(False):
        if given_study is None:
            frozen = find_frozen(requested, store) is not None
            requested = agreed(requested, options, frozen=frozen)
        prepared = prepare_study(requested, campaign=campaign, store=store)
        if given_study is None:
            keep_definition(chosen.with_leave(requested.leave), store)
        limit = budget_usd if budget_usd is not None else chosen.budget.usd
        _refuse_unasked_cost(prepared, limit, yes=yes)
        with ProgressBar() as bar:
            done = profile_study(
                requested,
                campaign=campaign,
                budget=Budget(usd=limit),
                on_progress=on_progress or bar,
                store=store,
            )
    return study_results(done, store, requested.models)


def study_results(done: Profiled, store: Store, models: Sequence[str]) -> StudyResults:
    """Read the results of ``models`` of a measured study from ``store``.

    Raises:
        StoreError: they cannot be read.
    """
    study, settings = done.study, done.study.analysis_settings()
    results: dict[str, Result] = {}
    if done.cliffs:
        bins = load_frozen(study, store).bins
        records = read_records(study, store, done.campaign)
        for cliffs in (result for result in done.cliffs if result.model in models):
            path = store.profile_dir(study.name, done.campaign, cliffs.model) / "metrics.json"
            answers = records[records["model"] == cliffs.model].reset_index(drop=True)
            results[cliffs.model] = Result(
                cliffs, read_result(path, Metrics), answers, settings, tuple(bins)
            )
    return StudyResults(done, store, results)


_OF_FILES = {
    "questions": "questions", "questions_per_document": "questions_per_document", "tasks": "task",
    "replicates": "replicates", "prompt": "prompt",
}  # fmt: skip


def _options(study: Study | str | Path, **given: Any) -> StudyOptions:
    """Return the options that the command line would pass on."""
    if isinstance(study, Study):
        for option, parameter in _OF_FILES.items():
            if given[option]:
                raise DataError(
                    f"{parameter} is for data and studies by name; a Study has its own, see "
                    "Study.changed."
                )
        return StudyOptions(study.name, **given)
    if not isinstance(study, str | Path) or not str(study).strip():
        raise DataError(f"study is {study!r}; give a study, its name, or a path to data.")
    text = str(study)
    known, broken = read_studies()
    if text in known or any(text == other.name for other in broken):
        return StudyOptions(text, **given)
    if text.endswith((".yaml", ".yml")):
        return StudyOptions(text, **given)
    if not is_url(text) and not Path(text).expanduser().exists():
        listed = ", ".join(sorted(name for name in known if not name.startswith("data-")))
        raise DataError(
            f"There is no study and no file {text!r}; there are the studies {listed}, and a path "
            "names your own data."
        )
    if not given["models"]:
        raise DataError(f"{text} needs a model to be asked about it; choose one with model=.")
    return StudyOptions(None, data=text, **given)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _texts(name: str, value: Names | None) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else tuple(value or ())
    for text in values:
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{name} is {text!r}; give a name, or a list of names.")
    return values


def _refuse_unasked_cost(prepared: Prepared, limit: float | None, *, yes: bool) -> None:
    """Raise BudgetError if the cost is unknown or above the study's limit, unless ``yes``."""
    usd, first = prepared.estimate.usd or 0.0, prepared.study.budget.confirm_above_usd
    unknown = ", ".join(prepared.estimate.price_unknown) if limit is None else ""
    usd = usd if limit is None else min(usd, limit)
    if yes or (usd <= first and not unknown):
        return
    if unknown:
        raise BudgetError(
            f"The price of {unknown} is not known: give `price` in models.yaml (zeros where it is "
            "free), or pass yes=True."
        )
    raise BudgetError(
        f"This would cost about {money(usd)}, above the {money(first)} where study "
        f"{prepared.study.name!r} asks first: pass yes=True, or budget_usd= to limit it."
    )
