"""What `analyze` and `profile` return: results that show, draw and write themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import DataError, Verdict

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin
    from contextcliff_dagster.contracts.results import Cliffs, Metrics
    from contextcliff_dagster.reporting.report_files import ReportFiles


class Shown:
    """What one result and several have in common: showing, drawing and writing themselves."""

    def _each(self) -> list[Result]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from contextcliff_dagster.notebook.html import results_html

        return results_html(self._each())

    def plot(self, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw scores over length, with caps, curves and intervals.

        Args:
            ax: where to draw; None makes a figure of its own.
        """
        from contextcliff_dagster.notebook.pictures import plot_results

        return plot_results(self._each(), ax)

    def report(self) -> str:
        """The report that the command line prints; of several models, with a line that compares."""
        from contextcliff_dagster.reporting.terminal import comparison_line, risk_report

        cliffs = [one.cliffs for one in self._each()]
        return "\n\n".join(filter(None, [*map(risk_report, cliffs), comparison_line(cliffs)]))

    def save(self, folder: str | Path) -> ReportFiles:
        """Write the report, its pictures and each model's ``cliffs.json`` into ``folder``.

        Raises:
            StoreError: the folder cannot be written.
        """
        from contextcliff_dagster.notebook.html import written

        return written(self._each(), Path(folder))


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown):
    """One model's verdict and safe context cap.

    Attributes:
        cliffs: verdict, cap and what they rest on; what ``cliffs.json`` holds.
        metrics: means, failures and times by bin; what ``metrics.json`` holds.
        records: the answers, one row each, with at least ``length_tokens`` (of the document) and
            ``score`` (0..1).
        settings: tolerance, confidence and the other choices of the analysis.
        bins: of the study's frozen sample; empty where deciles of the lengths were taken.
    """

    cliffs: Cliffs
    metrics: Metrics
    records: pd.DataFrame
    settings: AnalysisSettings
    bins: Sequence[LengthBin] = ()

    def _each(self) -> list[Result]:
        return [self]

    @property
    def name(self) -> str:
        """The model's name, as given."""
        return self.cliffs.model

    @property
    def verdict(self) -> Verdict:
        """What the length axis shows, for example ``cliff`` or ``stable``."""
        return self.cliffs.verdict

    @property
    def safe_cap_tokens(self) -> int | None:
        """The longest document that is safe, in tokens; None where no length is."""
        from contextcliff_dagster.reporting.wording.sentences import deciding_cap

        return deciding_cap(self.cliffs)

    def __repr__(self) -> str:
        from contextcliff_dagster.reporting.wording.sentences import one_line

        return one_line(self.cliffs)

    def to_frame(self) -> pd.DataFrame:
        """The length bins, one row each, indexed by ``bin``; the fields of ``cliffs.bins``.

        Counts by failure tag and times have a column each, such as ``failures.refusal``.
        """
        import pandas as pd

        from contextcliff_dagster.contracts.results import to_json

        return pd.json_normalize(to_json(self.cliffs.bins)).set_index("bin")

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values: ``cliffs.json``, whose schema is ``cliffs.schema.json``."""
        from contextcliff_dagster.contracts.results import to_json

        content: dict[str, Any] = to_json(self.cliffs)
        return content


class Results(Shown, Mapping[str, Result]):
    """Results by the model's name, in the order of the names."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = dict(results)

    def __getitem__(self, name: str) -> Result:
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def _each(self) -> list[Result]:
        return list(self.values())

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {result}" for name, result in self.items()) or "no results"

    def to_frame(self) -> pd.DataFrame:
        """The length bins of all models, indexed by ``model`` and ``bin``."""
        import pandas as pd

        if not self:
            return pd.DataFrame()
        frames = {name: result.to_frame() for name, result in self.items()}
        return pd.concat(frames, names=["model", "bin"])

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """`Result.to_dict` of each model."""
        return {name: result.to_dict() for name, result in self.items()}


def only(results: Results) -> Result:
    """The one result.

    Raises:
        DataError: there are several, or none.
    """
    if len(results) == 1:
        return next(iter(results.values()))
    names = ", ".join(results) or "none"
    raise DataError(f"One model is needed and there are {len(results)} ({names}); name one.")
