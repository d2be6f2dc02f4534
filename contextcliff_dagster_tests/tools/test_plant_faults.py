"""Planted faults: every patch still applies, and each outcome has its own verdict."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.paths import CHECKOUT
from tools.plant_faults import CAUGHT, FAULTS, applies, caught_by, main, verdict_on

TEST = "import product\n\n\ndef test_price():\n    assert product.price() == 2\n"
PATCH = """Fault: The price is wrong.
Caught by: {test}

--- a/product.py
+++ b/product.py
@@ -1,2 +1,2 @@
 def price():
-    return {before}
+    return {after}
"""


@pytest.mark.parametrize("fault", sorted(FAULTS.glob("*.patch")), ids=lambda path: path.stem)
def test_every_fault_can_still_be_planted(fault: Path) -> None:
    assert applies(fault, CHECKOUT), "Make the patch again: the product has changed there."
    assert caught_by(fault)


@pytest.mark.parametrize(
    ("before", "after", "test", "verdict"),
    [
        ("2", "3", "test_it.py::test_price", CAUGHT),
        ("2", "2.0", "test_it.py::test_price", "MISSED"),
        ("2", "3", "test_it.py::test_gone", "NOT TESTED"),
        ("4", "3", "test_it.py::test_price", "DOES NOT APPLY"),
    ],
)
def test_what_became_of_a_fault(
    before: str, after: str, test: str, verdict: str, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "product.py").write_text("def price():\n    return 2\n")
    (clone / "test_it.py").write_text(TEST)
    for line in ("init", "add .", "-c user.name=t -c user.email=t@t commit -m first"):
        subprocess.run(["git", *line.split()], cwd=clone, check=True, capture_output=True)
    patch = tmp_path / "wrong.patch"
    patch.write_text(PATCH.format(before=before, after=after, test=test))
    found, output = verdict_on(patch, clone)
    assert found == verdict
    assert ("failed" in output) is (found == CAUGHT)
    assert (clone / "product.py").read_text().endswith("return 2\n")


def test_a_fault_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-fault"]) == 2
    assert "no-such-fault" in capsys.readouterr().err
