"""How many random examples a property test draws: ten times as many by night as at a commit."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

COMMIT, NIGHTLY = "commit", "nightly"
_AT_A_COMMIT = 20

# Property tests are timed by nobody: other load of the machine is no fault of theirs. Each commit
# is tried with the same few examples; `make nightly` draws others.
settings.register_profile(
    COMMIT,
    max_examples=_AT_A_COMMIT,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    NIGHTLY,
    settings.get_profile(COMMIT),
    max_examples=10 * _AT_A_COMMIT,
    derandomize=False,
)


def examples(count: int) -> settings:
    """Return the settings of a test that needs other than the usual number at a commit."""
    return settings(max_examples=count * settings().max_examples // _AT_A_COMMIT)
