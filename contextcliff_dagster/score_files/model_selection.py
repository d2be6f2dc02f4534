"""Which of a file's models are meant, and whether there is enough of each to speak of length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.columns import stem

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OfModel(Protocol):
    """What both kinds of file hold of a model."""

    @property
    def model(self) -> str | None: ...
    @property
    def measured_lengths(self) -> NDArray[Any]: ...


T = TypeVar("T", bound=OfModel)


def chosen(
    path: Path, found: Sequence[T], *, model: str | None, by_model: bool
) -> list[tuple[str, T]]:
    """Those of ``found`` to analyse, each with its name.

    ``model`` picks one of the file's models, or names the one of a file that names none. A file of
    one model needs neither that nor ``by_model``; without any name it is called as the file.

    Raises:
        ScoreFileError: there are several and none was chosen, or the chosen one is not there.
    """
    names = [str(item.model) for item in found if item.model is not None]
    if not names:
        if by_model:
            raise ScoreFileError(
                f"{path} has no column 'model' to go by; leave --by model out, or name its one "
                "model with --model NAME."
            )
        return [(model or stem(path), found[0])]
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    if model is not None and model not in names:
        raise ScoreFileError(f"{path} has no model {model!r}; it has {listed}.")
    if model is not None:
        return [(model, found[names.index(model)])]
    if len(names) > 1 and not by_model:
        raise ScoreFileError(
            f"{path} holds {len(names)} models ({listed}): choose one with --model NAME, or take "
            "each by itself with --by model."
        )
    return list(zip(names, found, strict=True))


def need_two_lengths(path: Path, found: OfModel) -> None:
    """Raises:
    ScoreFileError: there is no score at all, or only at one length.
    """
    seen = found.measured_lengths
    of_model = "" if found.model is None else f" of model {found.model!r}"
    if not len(seen):
        raise ScoreFileError(f"{path}: no row{of_model} has a score, so nothing can be analysed.")
    if (seen == seen[0]).all():
        raise ScoreFileError(
            f"{path}: everything{of_model} was measured at one length, {seen[0]:,.0f} tokens; "
            "an effect of length needs at least two."
        )
