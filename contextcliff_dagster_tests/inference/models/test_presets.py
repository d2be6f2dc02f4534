"""Each preset is a valid entry, and claims no more than is known."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.inference.models.models_file import (
    PRESETS,
    ModelEntry,
    Preset,
    get_preset,
)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_a_preset_makes_an_entry(preset: Preset) -> None:
    entry = ModelEntry.model_validate(
        {
            "name": preset.name,
            "engine": "openai",
            "base_url": preset.base_url,
            "api_key_env": preset.api_key_env,
            "quirks": dict(preset.quirks),
        }
    )
    assert entry.resolved_base_url() == preset.base_url
    assert urlsplit(preset.source).scheme == "https"
    elsewhere = preset.local_port is None
    assert elsewhere == preset.base_url.startswith("https://")
    assert elsewhere == bool(preset.api_key_env), "a key goes over TLS only"
    assert not (elsewhere and preset.tried), "no service elsewhere was ever called from here"


def test_an_unknown_preset_is_named_with_those_there_are() -> None:
    with pytest.raises(StudyError, match="'steam'; choose one of openai, anthropic"):
        get_preset("steam")
