"""Keys and commands of a length profile, refused where a study has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.studies.study import Study

_KEYS = ("bins", "target", "targeted", "latency", "regression", "sentinel", "track")


def require_length_profile(study: Study) -> None:
    """Raise for a study whose experiments all make their own documents.

    Raises:
        StudyError: it has no corpus.
    """
    if not study.has_corpus:
        raise StudyError(
            f"Study {study.name!r} names no corpus, so it has no length profile, which this needs; "
            f"`contextcliff report {study.name}` shows what it measures, and `corpus` and "
            "`tokenizer` in its file add a length profile."
        )


def read_by_all(study: Study) -> Study:
    """Return ``study`` unless it has keys that only a length profile reads, and has none.

    Raises:
        ValueError: one of them differs from its default.
    """
    fields = type(study).model_fields
    given = [key for key in _KEYS if getattr(study, key) != fields[key].default]
    if given and not study.has_corpus:
        raise ValueError(
            f"only a length profile reads {' and '.join(given)}, and a study without `corpus` has "
            "none; leave that out"
        )
    return study
