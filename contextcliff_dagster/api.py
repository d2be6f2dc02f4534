"""Public API for notebooks, scripts and extensions; internal module paths may change.

Names are imported on first use, so importing this module costs nothing. Gateways import
`contextcliff_dagster.policy`, the other public module, which needs only the standard library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.bin_statistics import ModelProfile as ModelProfile
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext as ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model as profile_model
    from contextcliff_dagster.analysis.profile import profile_table as profile_table
    from contextcliff_dagster.analysis.records import AnalysisSettings as AnalysisSettings
    from contextcliff_dagster.contracts import BudgetError as BudgetError
    from contextcliff_dagster.contracts import ContextCliffError as ContextCliffError
    from contextcliff_dagster.contracts import CorpusError as CorpusError
    from contextcliff_dagster.contracts import DataError as DataError
    from contextcliff_dagster.contracts import Document as Document
    from contextcliff_dagster.contracts import EngineError as EngineError
    from contextcliff_dagster.contracts import Example as Example
    from contextcliff_dagster.contracts import StoreError as StoreError
    from contextcliff_dagster.contracts import StudyError as StudyError
    from contextcliff_dagster.contracts import Table as Table
    from contextcliff_dagster.contracts.results import Cliffs as Cliffs
    from contextcliff_dagster.contracts.results import Comparison as Comparison
    from contextcliff_dagster.contracts.results import Metrics as Metrics
    from contextcliff_dagster.contracts.results import to_json as to_json
    from contextcliff_dagster.corpora.corpus import Entry as Entry
    from contextcliff_dagster.corpora.corpus import StreamedCorpus as StreamedCorpus
    from contextcliff_dagster.corpora.corpus import document_id as document_id
    from contextcliff_dagster.corpora.corpus import options_hash as options_hash
    from contextcliff_dagster.corpora.extraction import Extracted as Extracted
    from contextcliff_dagster.corpora.extraction import Limits as Limits
    from contextcliff_dagster.corpora.extraction import Unusable as Unusable
    from contextcliff_dagster.corpora.extraction import extract_all as extract_all
    from contextcliff_dagster.experiments.common.documents import (
        GeneratedSamples as GeneratedSamples,
    )
    from contextcliff_dagster.experiments.common.documents import Made as Made
    from contextcliff_dagster.experiments.common.experiment import Alarm as Alarm
    from contextcliff_dagster.experiments.common.experiment import Analysis as Analysis
    from contextcliff_dagster.experiments.common.experiment import CheckOutcome as CheckOutcome
    from contextcliff_dagster.experiments.common.experiment import CheckSpec as CheckSpec
    from contextcliff_dagster.experiments.common.experiment import Experiment as Experiment
    from contextcliff_dagster.experiments.common.experiment import Source as Source
    from contextcliff_dagster.experiments.common.study_run import StudyRun as StudyRun
    from contextcliff_dagster.inference.engines.base import Delta as Delta
    from contextcliff_dagster.inference.engines.base import NoEmbeddings as NoEmbeddings
    from contextcliff_dagster.inference.engines.base import PromptCount as PromptCount
    from contextcliff_dagster.inference.engines.base import RejectedError as RejectedError
    from contextcliff_dagster.inference.engines.base import TransportError as TransportError
    from contextcliff_dagster.inference.engines.base import Usage as Usage
    from contextcliff_dagster.inference.models.engine_table import EngineSpec as EngineSpec
    from contextcliff_dagster.inference.models.entry import Identity as Identity
    from contextcliff_dagster.inference.requests.call_plan import follow_up as follow_up
    from contextcliff_dagster.notebook.compare import ComparisonResult as ComparisonResult
    from contextcliff_dagster.notebook.profile import StudyResults as StudyResults
    from contextcliff_dagster.notebook.results import Result as Result
    from contextcliff_dagster.notebook.results import Results as Results
    from contextcliff_dagster.policy import AboveCapError as AboveCapError
    from contextcliff_dagster.policy import ExpiredPolicyError as ExpiredPolicyError
    from contextcliff_dagster.policy import ForeignPolicyError as ForeignPolicyError
    from contextcliff_dagster.policy import PolicyError as PolicyError
    from contextcliff_dagster.policy import SafeContext as SafeContext
    from contextcliff_dagster.policy import guard as guard
    from contextcliff_dagster.policy import load_policies as load_policies
    from contextcliff_dagster.reporting.sections import Bullets as Bullets
    from contextcliff_dagster.reporting.sections import DataTable as DataTable
    from contextcliff_dagster.reporting.sections import Figure as Figure
    from contextcliff_dagster.reporting.sections import Paragraph as Paragraph
    from contextcliff_dagster.reporting.sections import Section as Section
    from contextcliff_dagster.reporting.terminal import risk_report as risk_report
    from contextcliff_dagster.run.study import prepare_study as prepare_study
    from contextcliff_dagster.run.study import profile_study as profile_study
    from contextcliff_dagster.run.study import rebuild_report as rebuild_report
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer as open_tokenizer
    from contextcliff_dagster.score_files import LogOptions as LogOptions
    from contextcliff_dagster.score_files import ScoreFileError as ScoreFileError
    from contextcliff_dagster.score_files import read_log as read_log
    from contextcliff_dagster.score_files import read_records as read_records
    from contextcliff_dagster.score_files import read_tables as read_tables
    from contextcliff_dagster.store import read_result as read_result
    from contextcliff_dagster.store import write_result as write_result
    from contextcliff_dagster.studies import Study as Study
    from contextcliff_dagster.studies import find_study as find_study
    from contextcliff_dagster.studies import load_studies as load_studies
    from contextcliff_dagster.studies import load_study as load_study

_NAMES = {
    "analysis.bin_statistics": "ModelProfile ProfileContext",
    "analysis.profile": "profile_model profile_table",
    "analysis.records": "AnalysisSettings",
    "contracts": "BudgetError ContextCliffError CorpusError DataError Document EngineError Example"
    " StoreError StudyError Table",
    "contracts.results": "Cliffs Comparison Metrics to_json",
    "corpora.corpus": "Entry StreamedCorpus document_id options_hash",
    "corpora.extraction": "Extracted Limits Unusable extract_all",
    "run.study": "prepare_study profile_study rebuild_report",
    "experiments.common.experiment": "Alarm Analysis CheckOutcome CheckSpec Experiment Source",
    "experiments.common.documents": "GeneratedSamples Made",
    "experiments.common.study_run": "StudyRun",
    "inference.engines.base": "Delta NoEmbeddings PromptCount RejectedError TransportError Usage",
    "inference.models.engine_table": "EngineSpec",
    "inference.models.entry": "Identity",
    "inference.requests.call_plan": "follow_up",
    "notebook.compare": "ComparisonResult",
    "notebook.profile": "StudyResults",
    "notebook.results": "Result Results",
    "policy": "AboveCapError ExpiredPolicyError ForeignPolicyError PolicyError SafeContext"
    " guard load_policies",
    "reporting.sections": "Bullets DataTable Figure Paragraph Section",
    "reporting.terminal": "risk_report",
    "sampling.tokenizers.tokenizers": "open_tokenizer",
    "score_files": "LogOptions ScoreFileError read_log read_records read_tables",
    "store": "read_result write_result",
    "studies": "Study find_study load_studies load_study",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    module = f"contextcliff_dagster.{_MODULES[name]}" if name in _MODULES else _exports(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _exports(name: str) -> str | None:
    """Return the module from which an extension exports ``name``, or None."""
    if name.startswith("_"):
        return None
    from contextcliff_dagster.contracts.extensions import extensions

    return next((e.exports[name] for e in extensions().values() if name in e.exports), None)
