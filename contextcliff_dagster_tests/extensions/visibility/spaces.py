"""Spaces of parameters, drawn and fixed, for the tests of `visibility`."""

from __future__ import annotations

from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.tasks.task import Choice, Number, Space

SPACE = Space(
    (
        Number("depth", 1, 20, integer=True),
        Number("rate", 1e-4, 1, log=True),
        Number("shift", -5, 5),
        Choice("loss", ("l1", "l2", "huber")),
        Choice("warm", (False, True)),
    ),
    {"depth": 5, "rate": 0.01, "shift": 0.0, "loss": "l1", "warm": False},
)
"""One parameter of each kind."""


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Spaces of one to five parameters with any bounds that make sense."""
    parameters: list[Number | Choice] = []
    for k in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["linear", "log", "integer", "log integer", "choice"]))
        if kind == "choice":
            count = draw(st.integers(2, 4))
            parameters.append(Choice(f"p{k}", tuple(f"c{n}" for n in range(count))))
        elif "integer" in kind:
            low = draw(st.integers(1, 1000))
            high = low + draw(st.integers(1, 10_000))
            parameters.append(Number(f"p{k}", low, high, log="log" in kind, integer=True))
        else:
            low = draw(st.floats(1e-6, 1e3))
            factor = draw(st.floats(1.5, 1e6))
            parameters.append(Number(f"p{k}", low, low * factor, log=kind == "log"))
    return Space(tuple(parameters), {one.name: one.at(0.5) for one in parameters})


def configs(space: Space) -> st.SearchStrategy[dict[str, float | int | str | bool]]:
    """Configurations of ``space``."""
    count = len(space.parameters)
    return st.lists(st.floats(0, 1), min_size=count, max_size=count).map(space.at)
