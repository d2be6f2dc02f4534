"""Simulated error rates of a study design, in words and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.reporting.wording import count, level, number, score

_COARSE = 0.1
"""An upper limit at most this far above the nominal error rate still counts as precise."""
_GOOD_POWER, _FAIR_POWER = 0.9, 0.7

TABLE_COLUMNS = ("planted", "runs", "found", "unsafe cap", "no cap", "cap / truth", "location held")


def rate(share: Mapping[str, Any]) -> str:
    """Return a rate with its interval, ``0.04 [0.02, 0.08]``; empty if nothing was simulated."""
    if number(share["value"]) is None:
        return ""
    return f"{score(share['value'])} [{score(share['low'])}, {score(share['high'])}]"


def design_words(result: Mapping[str, Any]) -> str:
    """Return the design: ``10 bins x 20, 0/1 scores, baseline 0.55, correlation 0.15``."""
    design = result["design"]
    scores = "0/1 scores" if design["binary"] else "graded scores"
    if design["replicates"] > 1:
        scores = f"{design['replicates']} calls a question"
    parts = [f"{design['bins']} bins x {design['per_bin']}", scores]
    parts.append(f"baseline {score(design['baseline'])}")
    if design["questions"] != [1, 1]:
        parts.append(f"correlation {score(design['correlation'])}")
    return ", ".join(parts)


def quote(result: Mapping[str, Any]) -> str:
    """Return the sentence on error rates that the study's report quotes."""
    return (
        f"By simulation of this design ({count(result['simulations'], 'run')}; "
        f"{design_words(result)}): false alarms {rate(result['false_alarms'])}, unsafe caps "
        f"{rate(result['unsafe'])}, finds a {level(_drop(result))} drop in {rate(result['power'])}."
    )


def conclusion(result: Mapping[str, Any]) -> str:
    """Return one sentence on whether the design keeps its error rates and what it can detect."""
    alarms, unsafe, power = (result[name] for name in ("false_alarms", "unsafe", "power"))
    reach = next(row for row in result["planted"] if row["kind"] == "step")["cap"]["median"]
    nominal = 1.0 - result["confidence"]
    if None in (alarms["value"], unsafe["value"], power["value"]):
        return "Too few simulations for a conclusion: use 20 or more."
    runs = count(result["simulations"], "simulation")
    if max(alarms["low"], unsafe["low"]) > nominal:
        safe = f"This design errs more often than its nominal {level(nominal)}"
    else:
        safe = f"this design errs at most {level(nominal)} of the time"
        few = max(alarms["high"], unsafe["high"]) > nominal + _COARSE
        safe = f"{runs} are too few to show whether {safe}" if few else f"In {runs}, {safe}"
    if power["value"] >= _GOOD_POWER:
        finds = "it finds"
    elif power["value"] >= _FAIR_POWER:
        finds = "it may miss"
    else:
        finds = "it is too small for"
    caps = f"reach {score(reach)} of what is safe in the median" if reach else "are mostly missing"
    return (
        f"{safe}: false alarms {rate(alarms)}, unsafe caps {rate(unsafe)}; {finds} a drop of "
        f"{level(_drop(result))} (found in {rate(power)}), before which its caps {caps}."
    )


def table_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return the table's cells, narrow enough for a terminal; caps include their quartiles."""
    rows = []
    for row in result["planted"]:
        cap = row["cap"]
        quartiles = f"{score(cap['quarter'])}-{score(cap['three_quarters'])}"
        cells = [
            rate(row["found"]),
            rate(row["unsafe"]),
            score(row["without_cap"]["value"], ""),
            f"{score(cap['median'])} ({quartiles})" if row["runs"] else "",
            rate(row["held"]),
        ]
        rows.append([_name(row), str(row["runs"]), *(c.replace("0.", ".") for c in cells)])
    return rows


def _drop(result: Mapping[str, Any]) -> float:
    smallest, _ = next(row for row in result["planted"] if row["kind"] == "step")["drop"]
    return float(smallest)


def _name(row: Mapping[str, Any]) -> str:
    if row["kind"] == "flat":
        return "flat: false alarms"
    low, high = (level(round(drop, 2)) for drop in row["drop"])
    name = {"ramp": "ramps", "dip": "dips"}.get(row["kind"], row["kind"])
    return f"{name} {low if low == high else f'{low} to {high}'}"
