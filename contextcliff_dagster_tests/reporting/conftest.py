"""Pictures as users get them."""

from __future__ import annotations

import pytest


@pytest.fixture
def _small_pictures() -> None:
    """Nothing is made smaller here."""
